// The HTTP API of the image service.

const PAGE_IMAGES = 24;

// What the server answered instead, in its own words.
export class Problem extends Error {
  constructor(status, { detail, code } = {}) {
    super(detail ?? `The server answered ${status}.`);
    this.status = status;
    this.code = code;
  }

  // Whether the same request may succeed later.
  get passes() {
    return [0, 408, 429].includes(this.status) || this.status >= 500;
  }
}

const unreachable = () => new Problem(0, { detail: "The server cannot be reached." });

async function request(method, path, body) {
  const json = body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(path, { method, ...json }).catch(() => {
    throw unreachable();
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, content);
  return content;
}

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

// `fetch` cannot tell how much of a body has been sent.
export function upload(file, key, onProgress) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", "/images");
    sending.responseType = "json";
    sending.setRequestHeader("Content-Type", file.type || "application/octet-stream");
    sending.setRequestHeader("Idempotency-Key", key);
    sending.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
    sending.onerror = () => reject(unreachable());
    sending.onload = () =>
      sending.status < 300 ? resolve(sending.response) : reject(new Problem(sending.status, sending.response ?? {}));
    sending.send(file);
  });
}
