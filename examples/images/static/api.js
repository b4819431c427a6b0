// The HTTP API of the image service.
import { Problem, send, unreachable } from "../common/http.js";
import { withToken } from "../common/session.js";

const PAGE_IMAGES = 24;

const request = (method, path, body) => withToken((headers) => send(method, path, { body, headers }));

const at = (id) => `/images/${encodeURIComponent(id)}`;

export const list = (cursor) =>
  request("GET", `/images?${new URLSearchParams({ limit: PAGE_IMAGES, ...(cursor && { cursor }) })}`);
export const get = (id) => request("GET", at(id));
export const job = (id) => request("GET", `/jobs/${encodeURIComponent(id)}`);
export const reprocess = (id) => request("POST", `${at(id)}/reprocess`, {});
export const cancel = (id) => request("POST", `${at(id)}/cancel`);
export const remove = (id) => request("DELETE", at(id));

// With the same key, the same file can be sent again without becoming a second image.
export const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export async function upload(file, key, onProgress) {
  if (!file.size) throw new Problem(400, { detail: "the file is empty" });
  const type = { "Content-Type": file.type || "application/octet-stream", "Idempotency-Key": key };
  return withToken((headers) => sendFile(file, { ...type, ...headers }, onProgress));
}

// `fetch` cannot tell how much of a body has been sent.
function sendFile(file, headers, onProgress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", "/images");
    sending.responseType = "json";
    for (const [name, value] of Object.entries(headers)) sending.setRequestHeader(name, value);
    sending.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    sending.onerror = () => reject(unreachable());
    sending.onload = () =>
      sending.status < 300 ? resolve(sending.response) : reject(new Problem(sending.status, sending.response ?? {}));
    sending.send(file);
  });
}
