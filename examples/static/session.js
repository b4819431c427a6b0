// A server that has keys asks for one. The page sends it once; from then on a cookie stands for it, and writing takes
// a token that only pages of this server can read.
import { send } from "./http.js";

// Whether this browser has signed in: one that has not need not ask for its session.
const MARK = "holdfast.session";
let session = null; // as the server describes it

export const changed = new EventTarget();
export const isSignedIn = () => session !== null;

// Whether the key that has signed in has this scope. A server that asks for no key allows everything.
export const may = (scope) => !session || session.scopes.includes(scope);

// Whose session it is, as text; empty: nobody has signed in.
export const user = () => (session ? JSON.stringify([session.tenant, session.subject]) : "");

export async function signIn(key) {
  begin(await send("POST", "/session", { body: { key } }));
}

export async function signOut() {
  await withToken((headers) => send("DELETE", "/session", { headers })).catch(unlessOver);
  end();
}

// The session that was begun before the page was loaded.
export async function restore() {
  if (localStorage.getItem(MARK)) await renew().catch(unlessOver);
}

// Once more if another page of this browser has signed in meanwhile.
export async function withToken(attempt) {
  const headers = () => (session ? { "X-CSRF-Token": session.csrfToken } : {});
  try {
    return await attempt(headers());
  } catch (problem) {
    if (problem.code !== "csrf_refused") throw problem;
    await renew();
    return attempt(headers());
  }
}

async function renew() {
  begin(await send("GET", "/session"));
}

function begin(begun) {
  session = begun;
  localStorage.setItem(MARK, "yes");
  changed.dispatchEvent(new Event("change"));
}

export function end() {
  session = null;
  localStorage.removeItem(MARK);
  changed.dispatchEvent(new Event("change"));
}

function unlessOver(problem) {
  if (problem.status !== 401) throw problem;
  end();
}
