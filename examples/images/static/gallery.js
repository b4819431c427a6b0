// The page: what it knows of the images, and what happens when something happens.
import { action, at } from "../common/dom.js";
import { announce, notify } from "../common/notices.js";
import * as session from "../common/session.js";
import { askForKey } from "../common/sign_in.js";
import * as api from "./api.js";
import { createCard, updateCard } from "./card.js";
import { closeDetails, isShown, openDetails, shownId, updateDetails } from "./details.js";
import { follow } from "./live.js";
import { dropName, keepName, nameOf } from "./names.js";
import { upload } from "./upload.js";
import { isActive } from "./view.js";

const AWAIT_OWN_MS = 300; // events may be here before the answer to the upload that caused them

const grid = at("grid"); // cards of images and of uploads
const images = new Map(); // by id: as the server described it, with its name, its progress and its card
const uploads = new Map(); // by image: the card that it replaces
const imageOf = new Map(); // by job; null: a job of no image that is shown
const strange = new Set(); // jobs of which nothing is known yet
let next; // the cursor of the next page
let stopFollowing = () => {};

// -- what is shown -------------------------------------------------------------------------------------------------

// `job`: its job, for one that is not finished.
function show(found, job) {
  const image = images.get(found.imageId) ?? { card: createCard(found.imageId) };
  const before = image.status;
  Object.assign(image, found, progressOf(job), { error: found.error, name: nameOf(found.imageId) });
  imageOf.set(image.jobId, image.imageId);
  if (!images.has(image.imageId)) insert(image);
  if (uploads.has(image.imageId)) replaceUpload(image);
  if (before && before !== image.status && !isActive(image)) announce(outcome(image));
  draw(image);
}

// The variants that are finished. How many there will be follows from them, and from how far the job is.
function progressOf({ parts, progress } = {}) {
  const finished = (parts ?? []).filter(({ status }) => status === "completed").map(({ name }) => name);
  const share = (progress?.percent ?? 0) / 100;
  return { finished, total: share && Math.round(finished.length / share) };
}

function draw(image) {
  updateCard(image.card, image);
  if (isShown(image.imageId)) updateDetails(image);
}

// In the order of the list, the newest first: ids begin with the time.
function insert(image) {
  const older = [...grid.children].find((card) => card.dataset.id < image.imageId);
  images.set(image.imageId, image);
  grid.insertBefore(image.card, older ?? null);
}

function replaceUpload({ imageId, card }) {
  const upload = uploads.get(imageId);
  card.querySelector("canvas").replaceWith(upload.querySelector("canvas")); // its preview may still come
  card.style.animation = "none"; // to the user it is the same card
  upload.remove();
  uploads.delete(imageId);
}

function forget(id) {
  const image = images.get(id);
  if (!image) return;
  if (isShown(id)) closeDetails();
  const neighbor = image.card.nextElementSibling ?? image.card.previousElementSibling;
  if (image.card.contains(document.activeElement)) neighbor?.querySelector("button")?.focus();
  image.card.remove();
  images.delete(id);
  dropName(id);
}

function count() {
  at("count").textContent = images.size ? `${images.size}${next ? "+" : ""} image${images.size === 1 ? "" : "s"}` : "";
  at("empty").hidden = grid.childElementCount > 0;
  at("more").hidden = !next;
}

const outcome = ({ name, status, error }) =>
  status === "completed" ? `${name} is ready` : `${name}: ${error?.message ?? "failed"}`;

// -- reading -------------------------------------------------------------------------------------------------------

const reading = new Map(); // by id: whether to read it once more

async function refresh(id) {
  if (reading.has(id)) return reading.set(id, true);
  do {
    reading.set(id, false);
    await read(id).catch((problem) => (problem.status === 404 ? forget(id) : report(problem)));
  } while (reading.get(id));
  reading.delete(id);
}

async function read(id) {
  const image = await api.get(id);
  show(image, isActive(image) ? await api.job(image.jobId) : undefined);
}

function showListed(found) {
  for (const image of found) {
    imageOf.set(image.jobId, image.imageId);
    if (isActive(image)) refresh(image.imageId); // the list does not have its progress
    else show(image);
  }
}

async function readNewest() {
  const { images: found, nextCursor } = await api.list();
  const oldest = nextCursor ? found.at(-1).createdAt : "";
  const listed = new Set(found.map(({ imageId }) => imageId));
  showListed(found);
  for (const [id, { createdAt }] of images) if (createdAt >= oldest && !listed.has(id)) forget(id);
  if (images.size <= found.length) next = nextCursor;
  count();
}

async function readMore() {
  const { images: found, nextCursor } = await api.list(next);
  next = nextCursor;
  showListed(found);
  count();
}

// -- events --------------------------------------------------------------------------------------------------------

// Events only say that something has happened; what there is to know is read.
function onEvent({ jobId }) {
  const id = imageOf.get(jobId);
  if (id === undefined) ask(jobId);
  else if (images.has(id) || uploads.has(id) || reading.has(id)) refresh(id);
}

// An image that was uploaded or deleted elsewhere.
function ask(jobId) {
  if (!strange.size) setTimeout(() => readStrange().catch(report), AWAIT_OWN_MS);
  strange.add(jobId);
}

async function readStrange() {
  const unknown = [...strange].filter((job) => !imageOf.has(job));
  strange.clear();
  if (!unknown.length) return;
  await readNewest();
  for (const job of unknown) if (!imageOf.has(job)) imageOf.set(job, null);
}

function onGap() {
  readNewest().catch(report);
  for (const image of images.values()) if (isActive(image)) refresh(image.imageId);
}

function onState(state) {
  at("connection").dataset.state = state;
  at("connection").textContent = { live: "Live", reconnecting: "Reconnecting", out: "Signed out" }[state];
}

// -- the session ---------------------------------------------------------------------------------------------------

// Events are followed first, so that nothing happens unseen between the two.
function enter() {
  setSignedOut(false);
  stopFollowing = follow({ onEvent, onGap, onState, onRefused: leave });
  readNewest().catch((problem) => (problem.status === 403 ? leave(problem) : report(problem)));
}

// The server wants a key (401), or one with another scope (403); or the user has signed out.
async function leave({ status, message } = {}) {
  if (isSignedOut()) return;
  setSignedOut(true);
  const ended = status === 401 && session.isSignedIn();
  if (status === 403) await session.signOut().catch(session.end);
  else session.end();
  askForKey(ended ? "The session is over." : status === 403 ? message : "", enter);
}

const isSignedOut = () => at("content").hidden;

function setSignedOut(isOut) {
  at("content").hidden = at("add").hidden = isOut;
  if (!isOut) return;
  stopFollowing();
  onState("out");
  closeDetails();
  at("confirm").close();
  for (const { card } of images.values()) card.remove();
  images.clear();
  next = undefined;
}

function report(problem) {
  if (problem.status === 401) leave(problem);
  else if (!isSignedOut()) notify(problem);
}

// -- what the user does --------------------------------------------------------------------------------------------

function add(files) {
  if (isSignedOut()) return;
  for (const file of files) grid.prepend(upload(file, { onUploaded, onProblem }));
}

// Its card says what is wrong, unless a key is missing.
function onProblem(problem) {
  if (problem.status === 401) leave(problem);
}

async function onUploaded({ imageId, jobId }, file, card) {
  keepName(imageId, file.name);
  uploads.set(imageId, card);
  imageOf.set(jobId, imageId);
  await refresh(imageId);
}

const actions = {
  details: (id) => openDetails(images.get(id)),
  cancel: (id) => order(id, api.cancel),
  reprocess: (id) => order(id, api.reprocess),
  async delete(id) {
    if (!(await confirmed(`Delete ${images.get(id).name}?`))) return;
    const { jobId } = await api.remove(id);
    imageOf.set(jobId, null);
    forget(id);
  },
};

async function order(id, request) {
  const { jobId } = await request(id);
  imageOf.set(jobId, id);
  await refresh(id);
}

function confirmed(question) {
  const dialog = at("confirm");
  at("confirm-question").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
  });
}

const chooseFiles = () => at("files").click();

document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-action]")?.dataset.action;
  const id = event.target.closest("[data-id]")?.dataset.id ?? shownId();
  if (Object.hasOwn(actions, name) && images.has(id)) Promise.resolve(actions[name](id)).catch(report);
});
at("add").onclick = chooseFiles;
action(at("empty"), "add").onclick = chooseFiles;
at("more").onclick = () => readMore().catch(report);
at("files").onchange = ({ target }) => {
  add(target.files);
  target.value = ""; // the same file can be chosen again
};

document.addEventListener("paste", ({ clipboardData }) => add(clipboardData.files));

const holdsFiles = ({ dataTransfer }) => dataTransfer.types.includes("Files");
document.addEventListener("dragover", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  document.body.classList.toggle("dragging", !isSignedOut());
});
document.addEventListener("dragleave", ({ relatedTarget }) => {
  if (!relatedTarget) document.body.classList.remove("dragging"); // it left the window
});
document.addEventListener("drop", (event) => {
  document.body.classList.remove("dragging");
  if (!holdsFiles(event)) return;
  event.preventDefault();
  add(event.dataTransfer.files);
});

new MutationObserver(count).observe(grid, { childList: true });
session.changed.addEventListener("change", () => (at("sign-out").hidden = !session.isSignedIn()));
at("sign-out").onclick = () => session.signOut().then(() => leave(), notify);
session.restore().catch(notify).then(enter);
