// The card of an image in the grid.
import { action, bytes, kind, make, part, pixels } from "../common/dom.js";
import { aboutName, isActive, isCanceled, isHopeless, showPicture, showPlaceholder, showStatus } from "./view.js";

const FRAME = 4 / 3;
const VERBS = { details: "Details of", cancel: "Cancel", reprocess: "Reprocess", delete: "Delete" };
const template = document.getElementById("card").content.firstElementChild;

export function createCard(id) {
  const card = template.cloneNode(true);
  card.dataset.id = id;
  return card;
}

export function updateCard(card, image) {
  part(card, "name").textContent = image.name;
  part(card, "name").title = aboutName(image);
  part(card, "pixels").textContent = pixels(image);
  part(card, "meta").textContent = `${kind(image)} · ${bytes(image.bytes)}`;
  part(card, "picture").alt = image.name;
  for (const [name, verb] of Object.entries(VERBS)) action(card, name).setAttribute("aria-label", `${verb} ${image.name}`);
  action(card, "cancel").hidden = !isActive(image);
  action(card, "reprocess").hidden = image.status !== "failed" || isHopeless(image);
  card.classList.toggle("failed", image.status === "failed" && !isCanceled(image) && !image.variants.length);
  showStatus(card, image);
  showSegments(part(card, "segments"), image);
  showPlaceholder(card.querySelector("canvas"), image);
  showPicture(part(card, "picture"), image, sizes(image));
}

// The frame cuts off the ends of a panorama: the whole of it is wider than the card.
function sizes({ width, height }) {
  const times = Math.max(1, width / height / FRAME).toFixed(2);
  return `(max-width: 480px) calc(${times} * 50vw), calc(${times} * 280px)`;
}

function showSegments(row, image) {
  row.hidden = !isActive(image);
  const names = [...image.finished, ...Array(Math.max(0, image.total - image.finished.length)).fill("")];
  if (row.childElementCount !== names.length) row.replaceChildren(...names.map(() => make("i")));
  names.forEach((title, place) => Object.assign(row.children[place], { title, className: title && "finished" }));
}
