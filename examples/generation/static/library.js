// The library: thumbnails, searched by prompt, tag and favorites.
import { action, at, make, part } from "../common/dom.js";
import * as api from "./api.js";

const TYPING_MS = 250;
const grid = at("grid");
const template = at("image").content.firstElementChild;
const images = new Map(); // by id, in the order of the list
let handlers = {};
let next; // the cursor of the next page
let asked = 0; // the last request for a first page: answers to others are late
let isReadingMore = false;
let isStale = true;
let typing;

// `report(problem)`, `open(assetId, images)`.
export const startLibrary = (given) => (handlers = given);

// Observed again after each page: it only tells of changes, and the end may still be in view.
const reachingEnd = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && readMore(), {
  rootMargin: "400px",
});

const isShown = () => !at("library-view").hidden;

export async function readLibrary() {
  const turn = ++asked;
  isStale = false;
  const [{ assets, nextCursor }, { tags }] = await Promise.all([api.listAssets(filter()), api.listTags()]);
  if (turn !== asked) return;
  showTags(tags);
  const cards = assets.map(cardOf);
  images.clear();
  for (const asset of assets) images.set(asset.assetId, asset);
  grid.replaceChildren(...cards);
  next = nextCursor;
  count();
}

// There is something new; read when it is seen.
export function libraryChanged() {
  isStale = true;
  if (isShown()) readLibrary().catch(handlers.report);
}

export function showLibrary() {
  if (isStale) readLibrary().catch(handlers.report);
}

export function clearLibrary() {
  asked++;
  isStale = true;
  images.clear();
  grid.replaceChildren();
  at("filter").reset();
  at("favorites").ariaPressed = "false";
  next = undefined;
}

export function updateImage(asset) {
  if (!images.has(asset.assetId)) return;
  images.set(asset.assetId, asset);
  update(find(asset.assetId), asset);
}

export function dropImage(id) {
  const card = find(id);
  if (!card) return;
  const neighbor = card.nextElementSibling ?? card.previousElementSibling;
  card.remove();
  images.delete(id);
  neighbor?.querySelector("button").focus();
  count();
}

const find = (id) => grid.querySelector(`[data-asset="${id}"]`);

const filter = () => ({
  search: at("search").value.trim(),
  tag: at("tag").value,
  favorite: at("favorites").ariaPressed === "true",
});
const isFiltered = () => Object.values(filter()).some(Boolean);

// A card that is there is used again: its picture stays.
function cardOf(asset) {
  const card = find(asset.assetId) ?? template.cloneNode(true);
  card.dataset.asset = asset.assetId;
  update(card, asset);
  return card;
}

function update(card, asset) {
  const picture = part(card, "picture");
  const heart = action(card, "favorite");
  const source = api.thumbnailOf(asset);
  if (picture.getAttribute("src") !== source) {
    picture.onload = () => picture.classList.add("loaded");
    picture.loading = "lazy";
    picture.src = source;
  }
  action(card, "open").setAttribute("aria-label", `Details of ${asset.prompt}`);
  heart.ariaPressed = String(asset.favorite);
  heart.setAttribute("aria-label", `Favorite: ${asset.prompt}`);
  part(card, "prompt").textContent = part(card, "prompt").title = asset.prompt;
}

function showTags(tags) {
  const chosen = at("tag").value;
  const options = tags.map(({ tag, assets }) => make("option", { value: tag }, `${tag} (${assets})`));
  if (chosen && !tags.some(({ tag }) => tag === chosen)) options.push(make("option", { value: chosen }, chosen));
  at("tag").replaceChildren(make("option", { value: "" }, "All tags"), ...options);
  at("tag").value = chosen;
  at("known-tags").replaceChildren(...tags.map(({ tag }) => make("option", { value: tag })));
}

function count() {
  const empty = at("no-images");
  empty.hidden = images.size > 0;
  part(empty, "title").textContent = isFiltered() ? "No images match" : "No images yet";
  part(empty, "text").textContent = isFiltered()
    ? "Other words, another tag, or all images may help."
    : "Every image that you generate is kept here.";
  action(empty, "clear").hidden = !isFiltered();
  at("filter").hidden = !images.size && !isFiltered();
  at("more-images").hidden = !next;
  reachingEnd.unobserve(at("more-images"));
  reachingEnd.observe(at("more-images"));
}

async function readMore() {
  if (!next || isReadingMore) return;
  isReadingMore = true;
  const turn = asked;
  try {
    const { assets, nextCursor } = await api.listAssets(filter(), next);
    if (turn !== asked) return;
    next = nextCursor;
    for (const asset of assets.filter(({ assetId }) => !images.has(assetId))) {
      images.set(asset.assetId, asset);
      grid.append(cardOf(asset));
    }
    count();
  } catch (problem) {
    handlers.report(problem);
  } finally {
    isReadingMore = false;
  }
}

async function toggleFavorite(id) {
  const { favorite } = images.get(id);
  updateImage(await api.changeAsset(id, { favorite: !favorite }));
}

const readAgain = () => readLibrary().catch(handlers.report);

grid.onclick = ({ target }) => {
  const id = target.closest("[data-asset]")?.dataset.asset;
  const name = target.closest("[data-action]")?.dataset.action;
  if (name === "open") handlers.open(id, [...images.keys()]);
  if (name === "favorite") toggleFavorite(id).catch(handlers.report);
};
at("filter").onsubmit = (event) => {
  event.preventDefault();
  readAgain();
};
at("search").oninput = () => {
  clearTimeout(typing);
  typing = setTimeout(readAgain, TYPING_MS);
};
at("tag").onchange = readAgain;
at("favorites").onclick = ({ currentTarget }) => {
  currentTarget.ariaPressed = String(currentTarget.ariaPressed !== "true");
  readAgain();
};
action(at("no-images"), "clear").onclick = () => {
  at("search").focus(); // the button will be gone
  at("filter").reset();
  at("favorites").ariaPressed = "false";
  readAgain();
};
at("more-images").onclick = readMore;
