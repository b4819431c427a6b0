// The card of an image in the grid.
import { action, bytes, isActive, kind, make, part, pixels, showPicture, showPlaceholder, showStatus } from "./view.js";

const SIZES = "(max-width: 480px) 50vw, 280px";
const VERBS = { details: "Details of", cancel: "Cancel", reprocess: "Reprocess", delete: "Delete" };
const template = document.getElementById("card").content.firstElementChild;

export function createCard(id) {
  const card = template.cloneNode(true);
  card.dataset.id = id;
  return card;
}

export function updateCard(card, image) {
  part(card, "name").textContent = image.name;
  part(card, "name").title = image.name;
  part(card, "meta").textContent = [pixels(image), kind(image), bytes(image.bytes)].join(" · ");
  part(card, "picture").alt = image.name;
  for (const [name, verb] of Object.entries(VERBS)) action(card, name).setAttribute("aria-label", `${verb} ${image.name}`);
  action(card, "cancel").hidden = !isActive(image);
  action(card, "reprocess").hidden = image.status !== "failed";
  showStatus(card, image);
  showSegments(part(card, "segments"), image);
  showPlaceholder(card.querySelector("canvas"), image);
  showPicture(part(card, "picture"), image, SIZES);
}

function showSegments(row, image) {
  row.hidden = !isActive(image);
  const names = [...image.finished, ...Array(Math.max(0, image.total - image.finished.length)).fill("")];
  if (row.childElementCount !== names.length) row.replaceChildren(...names.map(() => make("i")));
  names.forEach((title, place) => Object.assign(row.children[place], { title, className: title && "finished" }));
}
