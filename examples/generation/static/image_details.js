// The panel with one image of the library: large, with its settings and its tags.
import { action, at, bytes, kind, make, moment, part, pixels } from "../common/dom.js";
import * as api from "./api.js";
import { requestOf } from "./feed.js";

const dialog = at("details");
const picture = part(dialog, "picture");
const heart = action(dialog, "favorite");
let handlers = {};
let shown = null; // the image
let settings = {}; // of its request
let ids = []; // those among which it is turned to the next
let turn = 0; // answers to earlier ones are late

// `report(problem)`, `onChanged(image)`, `onDeleted(id)`, `useAgain(settings)`.
export const startDetails = (given) => (handlers = given);

export async function openImage(id, among) {
  ids = among;
  const mine = ++turn;
  const image = await api.readAsset(id);
  const found = await settingsOf(image);
  if (mine !== turn) return;
  settings = found;
  show(image);
  if (!dialog.open) dialog.showModal();
}

export const closeImage = () => dialog.close();

// The library does not have them.
async function settingsOf({ generationId }) {
  return requestOf(generationId) ?? api.readGeneration(generationId).catch((problem) => {
    if (problem.status === 404) return {};
    throw problem;
  });
}

function show(image) {
  const isOther = image.assetId !== shown?.assetId;
  shown = image;
  part(dialog, "prompt").textContent = image.prompt;
  heart.ariaPressed = String(image.favorite);
  heart.setAttribute("aria-label", image.favorite ? "Remove from favorites" : "Add to favorites");
  const place = ids.indexOf(image.assetId);
  action(dialog, "previous").disabled = place <= 0;
  action(dialog, "next").disabled = place === ids.length - 1;
  showTags(image.tags);
  showFacts(image);
  Object.assign(part(dialog, "download"), { href: api.fileOf(image), download: fileName(image) });
  if (!isOther && dialog.open) return;
  showPicture(image);
  sayOfTag("");
  at("new-tag").value = "";
}

function showPicture(image) {
  picture.classList.remove("loaded");
  picture.alt = image.prompt;
  picture.width = image.width;
  picture.height = image.height;
  picture.onload = () => picture.classList.add("loaded");
  picture.src = api.fileOf(image);
}

function showFacts(image) {
  const { style, negativePrompt, provider } = settings;
  const facts = [
    ["Size", `${pixels(image)} · ${kind(image)} · ${bytes(image.bytes)}`],
    ["Seed", make("code", {}, String(image.seed))],
    ["Style", style],
    ["Negative prompt", negativePrompt],
    ["Provider", provider],
    ["Made", moment(image.createdAt)],
    ["SHA-256", make("code", {}, image.sha256)],
  ].filter(([, value]) => value);
  part(dialog, "facts").replaceChildren(
    ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

function fileName({ prompt, seed, contentType }) {
  const words = prompt.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);
  return `${words || "image"}-${seed}.${contentType.split("/").at(-1)}`;
}

// -- tags ----------------------------------------------------------------------------------------------------------

function showTags(tags) {
  part(dialog, "tags").replaceChildren(
    ...tags.map((tag) => {
      const remove = make("button", { type: "button", className: "writes", textContent: "×" });
      remove.setAttribute("aria-label", `Remove the tag ${tag}`);
      remove.onclick = () => setTags(shown.tags.filter((other) => other !== tag));
      return make("li", {}, tag, remove);
    }),
  );
}

async function setTags(tags) {
  sayOfTag("");
  try {
    changed(await api.changeAsset(shown.assetId, { tags }));
    at("new-tag").value = "";
  } catch (problem) {
    if (problem.code !== "invalid_field") return handlers.report(problem);
    sayOfTag(problem.message);
  }
  at("new-tag").focus();
}

function sayOfTag(fault) {
  at("tag-fault").textContent = fault;
  at("tag-fault").hidden = !fault;
}

at("tagging").onsubmit = (event) => {
  event.preventDefault();
  const given = at("new-tag").value.split(",").filter((tag) => tag.trim());
  if (given.length) setTags([...shown.tags, ...given]);
};

// -- what else the user does ---------------------------------------------------------------------------------------

function changed(image) {
  handlers.onChanged(image);
  if (shown?.assetId === image.assetId) show(image);
}

// The image alone: one image with its own seed.
function useAgain() {
  const { prompt, seed, width, height } = shown;
  const { negativePrompt, style, provider, ...request } = settings;
  const size = { width: request.width ?? width, height: request.height ?? height };
  dialog.close();
  handlers.useAgain({ prompt, seed, count: 1, negativePrompt, style, provider, ...size });
}

async function remove() {
  const { assetId, prompt } = shown;
  const short = prompt.length > 60 ? `${prompt.slice(0, 60)}…` : prompt;
  if (!(await confirmed(`Delete the image “${short}”?`))) return;
  await api.removeAsset(assetId);
  dialog.close();
  handlers.onDeleted(assetId);
}

function confirmed(question) {
  const confirm = at("confirm");
  at("confirm-question").textContent = question;
  confirm.returnValue = "no";
  confirm.showModal();
  return new Promise((resolve) => {
    confirm.onclose = () => resolve(confirm.returnValue === "yes");
  });
}

function step(by) {
  const id = ids[ids.indexOf(shown.assetId) + by];
  return id && openImage(id, ids);
}

const actions = {
  close: () => dialog.close(),
  previous: () => step(-1),
  next: () => step(1),
  favorite: async () => changed(await api.changeAsset(shown.assetId, { favorite: !shown.favorite })),
  again: useAgain,
  delete: remove,
};

dialog.addEventListener("click", ({ target }) => {
  if (target === dialog) return dialog.close(); // beside the panel
  const name = target.closest("[data-action]")?.dataset.action;
  if (Object.hasOwn(actions, name)) Promise.resolve(actions[name]()).catch(handlers.report);
});
dialog.addEventListener("keydown", ({ key, target }) => {
  if (target.matches("input")) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (by) Promise.resolve(step(by)).catch(handlers.report);
});
