// One request, and what the server answered instead.

export class Problem extends Error {
  constructor(status, { detail, code, field } = {}, retryAfter) {
    super(status === 401 ? "the server asks for a key" : (detail ?? `The server answered ${status}.`)); // not for a header
    this.status = status;
    this.code = code;
    this.field = field;
    this.retryAfter = retryAfter; // in seconds
  }

  // Whether the same request may succeed later: 401 after signing in.
  get passes() {
    return [0, 401, 408, 429].includes(this.status) || this.status >= 500;
  }
}

export const unreachable = () => new Problem(0, { detail: "The server cannot be reached." });

export async function problemOf(answer) {
  const retryAfter = Number(answer.headers.get("Retry-After")) || undefined;
  return new Problem(answer.status, await answer.json().catch(() => ({})), retryAfter);
}

export async function send(method, path, { body, headers } = {}) {
  const json = body && { "Content-Type": "application/json" };
  const sent = { method, headers: { ...headers, ...json }, body: body && JSON.stringify(body) };
  const answer = await fetch(path, sent).catch(() => {
    throw unreachable();
  });
  if (!answer.ok) throw await problemOf(answer);
  return answer.json().catch(() => ({}));
}
