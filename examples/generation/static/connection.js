// Whether the server answers: a banner while it does not, until it does.
import { at } from "../common/dom.js";

const GONE = [0, 502, 503, 504];
const FIRST_MS = 1000;
const LONGEST_MS = 10_000;
const state = at("connection");
let probe = async () => {};
let onBack = () => {};
let isStopped = true;
let isGone = false;
let pause = FIRST_MS;
let timer;

// `ask` is a request that any session may send; `back` reads what was missed.
export function watchConnection(ask, back) {
  [probe, onBack, isStopped, isGone] = [ask, back, false, false];
  show();
}

export function stopWatching() {
  isStopped = true;
  clearTimeout(timer);
  show();
}

// What became of a request: `problem`, or null.
export function note(problem) {
  const gone = problem !== null && GONE.includes(problem.status);
  if (isStopped || gone === isGone) return;
  isGone = gone;
  clearTimeout(timer);
  pause = FIRST_MS;
  show();
  if (gone) timer = setTimeout(tryAgain, pause);
  else onBack();
}

export const isReachable = () => !isGone;

async function tryAgain() {
  clearTimeout(timer);
  await probe().catch(() => {}); // it is noted
  if (!isGone || isStopped) return;
  pause = Math.min(2 * pause, LONGEST_MS);
  timer = setTimeout(tryAgain, pause);
}

function show() {
  state.dataset.state = isStopped ? "out" : isGone ? "reconnecting" : "live";
  state.textContent = isStopped ? "Signed out" : isGone ? "Reconnecting" : "Live";
  at("gone").hidden = isStopped || !isGone;
}

addEventListener("online", () => isGone && tryAgain());
document.addEventListener("visibilitychange", () => !document.hidden && isGone && tryAgain());
