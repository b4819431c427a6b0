// The card of a file on its way to the server.
import { action, bytes, part } from "../common/dom.js";
import { announce } from "../common/notices.js";
import * as api from "./api.js";
import { showFault, sketch } from "./view.js";

const AT_ONCE = 3;
const template = document.getElementById("upload").content.firstElementChild;
const waiting = [];
let sending = 0;

// Calls `onUploaded(answer, file, card)` when the server has it, and `onProblem(problem)` if it does not take it.
export function upload(file, { onUploaded, onProblem }) {
  const card = template.cloneNode(true);
  const key = api.newKey();
  const failed = (problem) => fail(card, file, problem, onProblem);
  const trySending = () => enqueue(() => send(card, file, key, onUploaded).catch(failed));
  part(card, "name").textContent = part(card, "name").title = file.name;
  part(card, "progress").setAttribute("aria-label", `Upload of ${file.name}`);
  part(card, "meta").textContent = bytes(file.size);
  action(card, "dismiss").setAttribute("aria-label", `Dismiss ${file.name}`);
  action(card, "again").setAttribute("aria-label", `Upload ${file.name} again`);
  action(card, "dismiss").hidden = true;
  action(card, "dismiss").onclick = () => card.remove();
  action(card, "again").onclick = trySending;
  trySending();
  return card;
}

function enqueue(send) {
  waiting.push(send);
  sendWaiting();
}

function sendWaiting() {
  while (sending < AT_ONCE && waiting.length) {
    sending++;
    waiting.shift()().finally(() => {
      sending--;
      sendWaiting();
    });
  }
}

async function send(card, file, key, onUploaded) {
  showSending(card, 0);
  preview(card, file);
  const answer = await api.upload(file, key, (sent) => showSending(card, sent));
  await onUploaded(answer, file, card);
}

function fail(card, file, problem, onProblem) {
  showProblem(card, problem);
  announce(`${file.name} was not uploaded: ${problem.message}`);
  onProblem(problem);
}

// A picture that the browser cannot decode has none; the server says what it thinks of it.
async function preview(card, file) {
  const canvas = card.querySelector("canvas");
  const picture = await createImageBitmap(file, { resizeWidth: 64 }).catch(() => null);
  if (picture && !canvas.dataset.hash) sketch(canvas, picture);
  picture?.close();
}

function showSending(card, sent) {
  card.classList.remove("failed");
  part(card, "progress").value = sent;
  part(card, "status").dataset.status = "uploading";
  part(card, "status").textContent = sent < 1 ? `Uploading · ${Math.round(100 * sent)}%` : "Uploaded";
  action(card, "dismiss").hidden = action(card, "again").hidden = true;
  showFault(card, "");
}

function showProblem(card, problem) {
  card.classList.add("failed");
  part(card, "status").dataset.status = "failed";
  part(card, "status").textContent = "Not uploaded";
  action(card, "dismiss").hidden = false;
  action(card, "again").hidden = !problem.passes;
  showFault(card, problem.message);
}
