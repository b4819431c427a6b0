// The requests, the newest first, each with its live state.
import { action, at, counted, hide } from "../common/dom.js";
import { announce } from "../common/notices.js";
import * as api from "./api.js";
import { isReachable } from "./connection.js";
import { createStreams } from "./live.js";
import { createRequestCard, updateRequestCard } from "./request_card.js";
import { faultInWords, isActive, isCanceled } from "./words.js";

const SLOW_MS = 4000; // positions in the queue change without events, and not every request is followed
const TOGETHER_MS = 300; // events of several requests that come at once
const list = at("feed");
const requests = new Map(); // by id: as the server described it, with its card and the names of the images made so far
const reading = new Map(); // by id: whether to read it once more
const streams = createStreams({ onChange, onParts, onBroken: (id) => refresh(id) });
let handlers = {};
let next; // the cursor of the next page
let othersTimer;

// `report(problem)`, `onListed(request)`: it is shown from now on, `onChanged(request)`: its state is another one.
export const startFeed = (given) => (handlers = given);

export const requestOf = (id) => requests.get(id);
export const requestOfJob = (job) => [...requests.values()].find(({ jobId }) => jobId === job);

export async function readNewest() {
  const { generations, nextCursor } = await api.listGenerations();
  if (requests.size <= generations.length) next = nextCursor;
  for (const found of generations) show(found);
  for (const { generationId, ...request } of requests.values()) if (isActive(request)) refresh(generationId);
  follow();
  count();
}

export async function readOlder() {
  const { generations, nextCursor } = await api.listGenerations(next);
  next = nextCursor;
  for (const found of generations) show(found);
  follow();
  count();
}

export function clearFeed() {
  requests.clear();
  list.replaceChildren();
  next = undefined;
  streams.follow([]);
  at("no-requests").hidden = at("older-requests").hidden = true;
}

// -- what the user does --------------------------------------------------------------------------------------------

export async function generate(wanted, key) {
  const { generationId, creditsReserved } = await api.generate(wanted, key);
  show({ ...(await api.readGeneration(generationId)), promised: creditsReserved });
  follow();
  count();
  requests.get(generationId).card.scrollIntoView({ block: "nearest", behavior: "smooth" });
  announce(`Requested: ${wanted.prompt}`);
}

export async function cancel(id) {
  show(await api.cancelGeneration(id).catch((problem) => {
    if (problem.code === "already_final") return api.readGeneration(id);
    throw problem;
  }));
  follow();
}

// An image that was deleted from the library is no longer shown here.
export function dropAsset(assetId) {
  for (const request of requests.values()) {
    if (!request.assets.some((asset) => asset.assetId === assetId)) continue;
    request.assets = request.assets.filter((asset) => asset.assetId !== assetId);
    const tile = request.card.querySelector(`[data-asset="${assetId}"]`);
    if (tile?.contains(document.activeElement)) action(request.card, "again").focus();
    tile?.remove();
    draw(request);
  }
}

// -- what is shown -------------------------------------------------------------------------------------------------

function show(found) {
  const id = found.generationId;
  const known = requests.get(id);
  const request = known ?? { card: createRequestCard(id), finished: new Set() };
  const before = request.status;
  if (known && !isActive(known) && found.updatedAt < known.updatedAt) return; // an answer that was overtaken
  for (const name of ["queuePosition", "etaSeconds", "error"]) delete request[name];
  Object.assign(request, found);
  if (found.creditsReserved) request.promised = found.creditsReserved;
  if (found.status === "queued") request.finished = new Set(request.retryCount ? request.finished : []);
  if (!known) {
    insert(request);
    handlers.onListed(request);
  }
  draw(request);
  if (before === request.status) return;
  if (before) announce(outcome(request));
  if (before || isActive(request)) handlers.onChanged(request);
}

const draw = (request) => updateRequestCard(request.card, request);

function insert(request) {
  requests.set(request.generationId, request);
  const older = [...list.children].find((card) => card.dataset.id < request.generationId); // ids begin with the time
  list.insertBefore(request.card, older ?? null);
}

const CHANGED = { queued: "Queued", running: "Running", failed: "Retrying", rejected: "Rejected" };

function outcome(request) {
  const { prompt, status, assets } = request;
  if (isCanceled(request)) return `Canceled: ${prompt}`;
  if (status === "completed") return `${counted(assets.length, "image")} ready: ${prompt}`;
  return `${CHANGED[status] ?? "Failed"}: ${prompt}. ${faultInWords(request)}`;
}

function count() {
  at("no-requests").hidden = requests.size > 0;
  hide(at("older-requests"), !next, list.lastElementChild && action(list.lastElementChild, "again"));
}

// -- events --------------------------------------------------------------------------------------------------------

function onChange(id) {
  refresh(id);
  othersTimer ??= setTimeout(refreshOthers, TOGETHER_MS);
}

function onParts(id, names) {
  const request = requests.get(id);
  if (!request) return;
  for (const name of names) request.finished.add(name);
  draw(request);
}

// What has happened to one moves the others up.
function refreshOthers() {
  othersTimer = undefined;
  for (const [id, { status }] of requests) if (status === "queued") refresh(id);
}

async function refresh(id) {
  if (reading.has(id)) return reading.set(id, true);
  do {
    reading.set(id, false);
    await api.readGeneration(id).then((found) => requests.has(id) && show(found), handlers.report);
  } while (reading.get(id) && isReachable());
  reading.delete(id);
  follow();
}

// Those that run first, then the oldest: they are the next ones.
function follow() {
  const active = [...requests.values()].filter(isActive);
  const order = ({ status, generationId }) => (status === "running" ? "0" : "1") + generationId;
  active.sort((one, other) => (order(one) < order(other) ? -1 : 1));
  streams.follow(isReachable() ? active.map(({ generationId }) => generationId) : []);
}

setInterval(() => {
  if (document.hidden || !isReachable()) return;
  for (const [id, request] of requests) if (isActive(request)) refresh(id);
}, SLOW_MS);
document.addEventListener("visibilitychange", () => {
  follow();
  if (!document.hidden) for (const [id, request] of requests) if (isActive(request)) refresh(id);
});
