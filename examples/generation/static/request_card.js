// The card of a request: its prompt, its state, and a tile for each of its images.
import { action, at, hide, part, pixels } from "../common/dom.js";
import { fileOf, thumbnailOf } from "./api.js";
import { creditsInWords, faultInWords, isActive, isCanceled, stateInWords } from "./words.js";

const LARGE = 420; // pixels: from here on, a tile shows the image instead of its thumbnail
const template = at("request").content.firstElementChild;
const tileTemplate = at("tile").content.firstElementChild;

export function createRequestCard(id) {
  const card = template.cloneNode(true);
  card.dataset.id = id;
  return card;
}

export function updateRequestCard(card, request) {
  const prompt = part(card, "prompt");
  prompt.textContent = prompt.title = request.prompt;
  card.dataset.state = isCanceled(request) ? "canceled" : request.status;
  const status = part(card, "status");
  status.dataset.status = card.dataset.state;
  status.textContent = stateInWords(request);
  part(card, "meta").textContent = metaOf(request);
  const fault = part(card, "fault");
  fault.textContent = faultInWords(request);
  fault.hidden = !fault.textContent;
  hide(action(card, "cancel"), !isActive(request), action(card, "again"));
  action(card, "cancel").setAttribute("aria-label", `Cancel ${request.prompt}`);
  action(card, "again").setAttribute("aria-label", `Use the settings of ${request.prompt}`);
  showTiles(part(card, "tiles"), request);
}

function metaOf({ style, seed, provider, ...request }) {
  const words = [pixels(request), style, `seed ${seed}`, provider === "local" ? "" : provider, creditsInWords(request)];
  return words.filter(Boolean).join(" · ");
}

function showTiles(list, request) {
  const { assets, count, finished, width, height } = request;
  const shown = isActive(request) ? count : assets.length;
  list.hidden = !shown;
  while (list.childElementCount > shown) list.lastElementChild.remove();
  while (list.childElementCount < shown) list.append(tileTemplate.cloneNode(true));
  [...list.children].forEach((tile, place) => {
    const asset = assets[place];
    const picture = part(tile, "picture");
    const button = action(tile, "open");
    tile.style.setProperty("--ratio", width / height);
    tile.classList.toggle("finished", !asset && finished.has(`image ${place + 1}`));
    tile.classList.toggle("working", request.status === "running");
    button.disabled = !asset;
    picture.hidden = !asset;
    if (!asset) return button.setAttribute("aria-label", `Image ${place + 1} of ${count}: not made yet`);
    tile.dataset.asset = asset.assetId;
    button.setAttribute("aria-label", `Image ${place + 1} of ${assets.length}: ${request.prompt}`);
    showPicture(picture, asset);
  });
}

// A picture that is shown stays: its thumbnail, made later, is for the next time.
function showPicture(picture, asset) {
  if (picture.dataset.asset === asset.assetId) return;
  const isLarge = picture.parentElement.clientWidth * devicePixelRatio > LARGE;
  picture.dataset.asset = asset.assetId;
  picture.onload = () => picture.classList.add("loaded");
  picture.src = isLarge ? fileOf(asset) : thumbnailOf(asset);
}
