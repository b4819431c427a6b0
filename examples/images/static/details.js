// The panel with everything about one image.
import { action, bytes, kind, make, moment, part, pixels } from "../common/dom.js";
import { isNamed } from "./names.js";
import {
  aboutName, address, hidePicture, isActive, isCanceled, isHopeless, showPicture, showPlaceholder, showStatus, sketch,
} from "./view.js";

const dialog = document.getElementById("details");
const picture = part(dialog, "picture");
let shown = null; // the id of the image

export function openDetails(image) {
  shown = image.imageId;
  hidePicture(picture);
  part(dialog, "variants").replaceChildren();
  updateDetails(image);
  dialog.showModal();
}

export const closeDetails = () => dialog.close();
export const isShown = (id) => dialog.open && shown === id;
export const shownId = () => shown;

export function updateDetails(image) {
  part(dialog, "name").textContent = image.name;
  part(dialog, "name").title = aboutName(image);
  picture.alt = image.name;
  action(dialog, "cancel").hidden = !isActive(image);
  action(dialog, "reprocess").hidden = isActive(image) || isHopeless(image);
  showStatus(dialog, image);
  if (!image.blurhash) showPreview(image.card.querySelector("canvas"));
  showPlaceholder(dialog.querySelector("canvas"), image);
  showPicture(picture, image, sizes(image));
  showFacts(image);
  showVariants(image);
  dialog.classList.toggle("bare", !canShow(image));
}

// As wide as the stage may get; an image is never enlarged.
const sizes = ({ width }) => `(max-width: 800px) min(100vw, ${width}px), min(720px, ${width}px)`;

// Of one that was canceled there may be a preview.
const canShow = (image) =>
  isActive(image) || image.variants.length > 0 || (isCanceled(image) && !dialog.querySelector("canvas").hidden);

// Of an image in progress there is no more than what its card shows.
function showPreview(preview) {
  const canvas = dialog.querySelector("canvas");
  delete canvas.dataset.hash;
  canvas.hidden = preview.hidden;
  if (!preview.hidden) sketch(canvas, preview);
}

function showFacts(image) {
  const color = make("span", { className: "swatch" });
  color.style.backgroundColor = image.color;
  const facts = [
    ["Original", [pixels(image), kind(image), bytes(image.bytes)].join(" · ")],
    ["Frames", image.frames > 1 && image.frames],
    ["Uploaded", moment(image.createdAt)],
    ["Color", image.color && make("span", {}, color, make("code", {}, image.color))],
    ["dHash", image.dhash && make("code", {}, image.dhash)],
    ["BlurHash", image.blurhash && make("code", {}, image.blurhash)],
    ["SHA-256", image.sha256 && make("code", { title: image.sha256 }, image.sha256)],
    ["Name", isNamed(image.imageId) ? "known to this browser only" : "not kept by the service"],
    ["Job", make("a", { href: `/jobs/${image.jobId}`, target: "_blank" }, make("code", {}, image.jobId))],
  ];
  const known = facts.filter(([, value]) => value);
  part(dialog, "facts").replaceChildren(
    ...known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

// Rows stay where they are, so that a link keeps the focus while others appear.
function showVariants(image) {
  const body = part(dialog, "variants");
  const rows = new Map([...body.rows].map((row) => [row.dataset.name, row]));
  const made = new Map(image.variants.map((variant) => [variant.name, variant]));
  const names = [...new Set([...made.keys(), ...(isActive(image) ? image.finished : [])])];
  for (const [name, row] of rows) if (!names.includes(name)) row.remove();
  for (const name of names) {
    const row = rows.get(name) ?? body.appendChild(make("tr"));
    const variant = made.get(name);
    const url = variant ? address(image, variant) : "";
    if (row.dataset.url !== url) fill(row, name, url, variant);
  }
  body.parentElement.hidden = !names.length;
  part(dialog, "none").hidden = names.length > 0;
}

// A variant that is finished is published together with the others.
function fill(row, name, url, variant) {
  Object.assign(row.dataset, { name, url });
  const cells = variant
    ? [make("a", { href: url, target: "_blank" }, name), variant.format, pixels(variant), bytes(variant.bytes)]
    : [name, name.split(".").at(-1), "", "stored"];
  row.className = variant ? "" : "pending";
  row.replaceChildren(...cells.map((cell) => make("td", {}, cell)));
}

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside the panel
});
action(dialog, "close").onclick = closeDetails;
