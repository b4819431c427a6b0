// The HTTP API of the generation service.
import { send } from "../common/http.js";
import { withToken } from "../common/session.js";
import { note } from "./connection.js";

const PAGE_REQUESTS = 8;
const PAGE_IMAGES = 30;
const PAGE_ENTRIES = 20;

async function request(method, path, body, more) {
  try {
    const answer = await withToken((headers) => send(method, path, { body, headers: { ...headers, ...more } }));
    note(null);
    return answer;
  } catch (problem) {
    note(problem);
    throw problem;
  }
}

const generationAt = (id) => `/generations/${encodeURIComponent(id)}`;
const assetAt = (id) => `/assets/${encodeURIComponent(id)}`;

function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// With the same key, the same request can be sent again without becoming a second generation.
export const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export const generate = (wanted, key) => request("POST", "/generations", wanted, { "Idempotency-Key": key });
export const listGenerations = (cursor) => request("GET", `/generations${query({ limit: PAGE_REQUESTS, cursor })}`);
export const readGeneration = (id) => request("GET", generationAt(id));
export const cancelGeneration = (id) => request("POST", `${generationAt(id)}/cancel`);
export const eventsOf = (id) => `${generationAt(id)}/events`;

export const listAssets = (filter, cursor) =>
  request("GET", `/assets${query({ limit: PAGE_IMAGES, ...filter, cursor })}`);
export const readAsset = (id) => request("GET", assetAt(id));
export const changeAsset = (id, change) => request("PATCH", assetAt(id), change);
export const removeAsset = (id) => request("DELETE", assetAt(id));
export const listTags = () => request("GET", "/assets/tags");

// By path, not by its signed URL, which is another one each time and expires.
export const fileOf = ({ assetId }) => `${assetAt(assetId)}/file`;
export const thumbnailOf = (asset) => (asset.thumbnailUrl ? `${assetAt(asset.assetId)}/thumbnail` : fileOf(asset));

export const readCredits = () => request("GET", "/credits");
export const readStatement = (cursor) => request("GET", `/credits/statement${query({ limit: PAGE_ENTRIES, cursor })}`);
