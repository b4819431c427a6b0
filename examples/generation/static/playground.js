// The page: what belongs together, the session, and what happens when something happens.
import { at, make } from "../common/dom.js";
import { notify } from "../common/notices.js";
import * as session from "../common/session.js";
import { askForKey } from "../common/sign_in.js";
import { choosePrompt, clearComposer, fill, showAvailable, showMayGenerate, startComposer } from "./composer.js";
import { isReachable, stopWatching, watchConnection } from "./connection.js";
import { creditsChanged, hideCredits, nameEntries, readCredits, startCredits } from "./credits.js";
import * as feed from "./feed.js";
import { closeImage, openImage, startDetails } from "./image_details.js";
import * as library from "./library.js";
import { isActive } from "./words.js";

const IDEAS = ["a harbor at night", "snowy mountains at dawn", "a neon city in the rain", "a sailing boat at sunset"];
const WRITE = "generation:write";
const ALIVE_MS = 15_000; // how often the page looks for what was requested elsewhere
let draftOf = ""; // whose prompt stays in the form while the session is over; empty: it is for whoever comes next
let isCatchingUp = false;

// -- views ---------------------------------------------------------------------------------------------------------

function showView() {
  const isLibrary = location.hash === "#library";
  at("library-view").hidden = !isLibrary;
  at("requests-view").hidden = isLibrary;
  for (const name of ["requests", "library"]) at(`tab-${name}`).ariaCurrent = String((name === "library") === isLibrary);
  if (isLibrary && !isSignedOut()) library.showLibrary();
}

// -- the session ---------------------------------------------------------------------------------------------------

function enter() {
  if (draftOf && draftOf !== session.user()) clearComposer();
  setSignedOut(false);
  watchConnection(() => readCredits(), readAll);
  readAll();
  showView();
}

function readAll() {
  const reads = [readCredits(), feed.readNewest()];
  for (const read of reads) read.catch((problem) => (problem.status === 403 ? leave(problem) : report(problem)));
  library.libraryChanged();
}

// The server wants a key (401), or one with another scope (403); or the user has signed out.
async function leave({ status, message } = {}) {
  if (isSignedOut()) return;
  const ended = status === 401 && session.isSignedIn();
  draftOf = session.user();
  if (status !== 401) clearComposer();
  setSignedOut(true);
  if (status === 403) await session.signOut().catch(session.end);
  else session.end();
  askForKey(ended ? "The session is over." : status === 403 ? message : "", enterAgain);
}

function enterAgain() {
  enter();
  at("prompt").focus({ preventScroll: true });
}

const isSignedOut = () => at("content").hidden;

function setSignedOut(isOut) {
  at("content").hidden = isOut;
  if (!isOut) return;
  stopWatching();
  closeImage();
  at("confirm").close();
  hideCredits();
  feed.clearFeed();
  library.clearLibrary();
}

// What a key that may only read cannot do is not offered.
function showSession() {
  at("sign-out").hidden = !session.isSignedIn();
  document.body.classList.toggle("reader", !session.may(WRITE));
  showMayGenerate(session.may(WRITE));
}

// That the server is gone is said by the banner.
function report(problem) {
  if (problem.status === 401) leave(problem);
  else if (!isSignedOut() && isReachable()) notify(problem);
}

// -- what happens --------------------------------------------------------------------------------------------------

function onRequestChanged(request) {
  creditsChanged();
  if (!isActive(request) && request.assets.length) library.libraryChanged();
}

// What was requested or granted elsewhere has changed the credits; a server that is gone is found by this, too.
async function catchUp() {
  if (isCatchingUp || document.hidden || isSignedOut() || !isReachable()) return;
  isCatchingUp = true;
  try {
    if (!(await readCredits())) return;
    await feed.readNewest();
    library.libraryChanged();
  } catch (problem) {
    report(problem);
  } finally {
    isCatchingUp = false;
  }
}

async function generate(wanted, key) {
  await feed.generate(wanted, key).catch((problem) => {
    if (problem.status === 401) leave(problem);
    throw problem;
  });
  if (location.hash === "#library") location.hash = "#requests";
}

const cardActions = {
  cancel: (id) => feed.cancel(id),
  again: (id) => fill(feed.requestOf(id)),
  open: (id, asset) => openImage(asset, feed.requestOf(id).assets.map(({ assetId }) => assetId)),
};

at("feed").onclick = ({ target }) => {
  const name = target.closest("[data-action]")?.dataset.action;
  const id = target.closest("[data-id]")?.dataset.id;
  const asset = target.closest("[data-asset]")?.dataset.asset;
  if (Object.hasOwn(cardActions, name)) Promise.resolve(cardActions[name](id, asset)).catch(report);
};
at("older-requests").onclick = () => feed.readOlder().catch(report);

startComposer(generate);
startCredits({ report, onCredits: showAvailable });
feed.startFeed({ report, onListed: nameEntries, onChanged: onRequestChanged });
library.startLibrary({ report, open: (id, ids) => openImage(id, ids).catch(report) });
startDetails({
  report,
  useAgain: fill,
  onChanged(image) {
    library.updateImage(image);
    library.libraryChanged();
  },
  onDeleted(id) {
    library.dropImage(id);
    feed.dropAsset(id);
  },
});

for (const idea of IDEAS) {
  at("ideas").append(make("button", { type: "button", textContent: idea, onclick: () => choosePrompt(idea) }));
}
addEventListener("hashchange", showView);
setInterval(catchUp, ALIVE_MS);
document.addEventListener("visibilitychange", catchUp);
addEventListener("focus", catchUp); // of a window that was seen all the time
session.changed.addEventListener("change", showSession);
at("sign-out").onclick = () => session.signOut().then(() => leave(), notify);
session.restore().catch(notify).then(enter);
