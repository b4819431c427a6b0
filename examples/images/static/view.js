// What cards and details have in common: words, sizes, pictures.
import { counted, part } from "../common/dom.js";
import { draw } from "./blurhash.js";
import { isNamed } from "./names.js";

const WORDS = {
  queued: "Queued",
  processing: "Processing",
  completed: "Ready",
  failed_retryable: "Retrying",
  failed: "Failed",
};
// The file is at fault: processing it again cannot help.
const HOPELESS = [
  "corrupt_image", "unsupported_image", "image_too_many_pixels", "image_too_many_frames", "image_out_of_memory",
  "original_missing",
];
const PLACEHOLDER_PIXELS = 32; // wide
const BEST_FIRST = ["avif", "webp", "jpeg", "png"];

export const isActive = ({ status }) => ["queued", "processing", "failed_retryable"].includes(status);

export const isCanceled = ({ error }) => error?.code === "canceled";
export const isHopeless = ({ error }) => HOPELESS.includes(error?.code);

// By path, not by its signed URL, which is another one each time and expires.
export const address = (image, { name, sha256 }) =>
  `/images/${image.imageId}/${encodeURIComponent(name)}?v=${sha256.slice(0, 8)}`;

// What the tooltip of a name says about it.
export const aboutName = ({ imageId, name }) =>
  isNamed(imageId)
    ? `${name}\nOnly this browser knows the name: the service keeps none.`
    : "The service keeps no file names. The browser that uploaded the image knows this one's.";

export function showStatus(element, image) {
  const status = isCanceled(image) ? "canceled" : image.status;
  const line = part(element, "status");
  line.dataset.status = status;
  line.textContent = [WORDS[status] ?? "Canceled", progress(image)].filter(Boolean).join(" · ");
  showFault(element, status === "canceled" ? "" : image.error?.message);
}

function progress(image) {
  if (image.status === "completed") return counted(image.variants.length, "variant");
  const begun = isActive(image) && image.status !== "queued" && image.total;
  return begun ? `${image.finished.length} of ${image.total}` : "";
}

export function showFault(element, message) {
  const line = part(element, "fault");
  line.textContent = line.title = message ?? "";
  line.parentElement.hidden = !message;
}

// What is seen until the picture itself is there.
export function showPlaceholder(canvas, { blurhash, color, width, height }) {
  canvas.parentElement.style.setProperty("--color", color ?? "");
  if (!blurhash || canvas.dataset.hash === blurhash) return;
  draw(sized(canvas, width, height), blurhash);
  canvas.dataset.hash = blurhash;
}

// The same from the file or the placeholder that the browser has.
export function sketch(canvas, picture) {
  sized(canvas, picture.width, picture.height).getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
}

function sized(canvas, width, height) {
  canvas.width = PLACEHOLDER_PIXELS;
  canvas.height = Math.max(1, Math.round((PLACEHOLDER_PIXELS * height) / width));
  canvas.hidden = false;
  return canvas;
}

// The variants of one format: that of which there are most, of these the best.
function bestFormat(variants) {
  const groups = BEST_FIRST.map((format) => variants.filter((variant) => variant.format === format));
  return groups.reduce((best, group) => (group.length > best.length ? group : best), []);
}

export function showPicture(picture, image, sizes) {
  const srcset = bestFormat(image.variants).map((variant) => `${address(image, variant)} ${variant.width}w`).join(", ");
  if (!srcset || picture.getAttribute("srcset") === srcset) return;
  picture.sizes = sizes;
  picture.srcset = srcset;
  picture.onload = () => picture.classList.add("loaded"); // what was seen until then disappears
  picture.onerror = () => hidePicture(picture); // replaced meanwhile; the next update shows the new one
}

export function hidePicture(picture) {
  picture.removeAttribute("srcset");
  picture.classList.remove("loaded");
}
