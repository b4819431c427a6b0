// What the user has, in the bar, and every entry of it, in a panel.
import { action, at, counted, hide, make, moment, part } from "../common/dom.js";
import * as api from "./api.js";
import { requestOfJob } from "./feed.js";

const TOGETHER_MS = 100; // changes that come at once
const KINDS = { // words, and how the entry changes what is available
  grant: ["Granted", "+"],
  reserve: ["Reserved", "−"],
  release: ["Released", "+"],
  commit: ["Paid from reserved", ""],
  forfeit: ["Not refunded: request rejected", ""],
};
const button = at("credits");
const dialog = at("statement");
const entries = part(dialog, "entries");
const more = action(dialog, "more");
let handlers = {};
let next; // the cursor of the next page
let timer;
let last; // what was read, as text

// `onCredits(credits)`, `report(problem)`.
export const startCredits = (given) => (handlers = given);

// Whether they are others than before. `withEntries`: there are new entries although they may not be.
export async function readCredits(withEntries = false) {
  const credits = await api.readCredits();
  const before = last;
  last = JSON.stringify(credits);
  part(button, "available").textContent = counted(credits.available, "credit");
  part(button, "reserved").textContent = `${credits.reserved} reserved`;
  part(button, "reserved").hidden = !credits.reserved;
  button.classList.toggle("none", credits.available <= 0);
  button.hidden = false;
  for (const name of ["available", "reserved", "balance"]) {
    part(dialog, name).textContent = credits[name].toLocaleString("en");
  }
  handlers.onCredits(credits);
  if (dialog.open && (withEntries || before !== last)) await readEntries();
  return before !== last;
}

export function creditsChanged() {
  timer ??= setTimeout(() => {
    timer = undefined;
    readCredits(true).catch(handlers.report);
  }, TOGETHER_MS);
}

export function hideCredits() {
  clearTimeout(timer);
  timer = undefined;
  button.hidden = true;
  dialog.close();
  entries.replaceChildren();
}

// The newest page. Older ones that are shown stay.
async function readEntries() {
  const { entries: found, nextCursor } = await api.readStatement();
  const newest = Number(entries.firstElementChild?.dataset.id ?? 0);
  const unseen = found.filter(({ entryId }) => Number(entryId) > newest);
  if (unseen.length === found.length) {
    entries.replaceChildren(); // there may be a gap
    next = nextCursor;
  }
  entries.prepend(...unseen.map(row));
  more.hidden = !next;
}

async function readMore() {
  const { entries: found, nextCursor } = await api.readStatement(next);
  next = nextCursor;
  entries.append(...found.map(row));
  hide(more, !next, entries.parentElement);
}

// Entries say by its prompt what they are for, once the request is known.
export function nameEntries({ jobId, prompt }) {
  for (const line of entries.querySelectorAll(`[data-job="${jobId}"]`)) {
    const about = line.querySelector(".for");
    about.textContent = about.title = prompt;
  }
}

function row({ entryId, kind, amount, jobId, at: time, reason }) {
  const [words, sign] = KINDS[kind] ?? [kind, ""];
  const about = reason ?? requestOfJob(jobId)?.prompt ?? (jobId ? `Request ${jobId.slice(-6)}` : "");
  const line = make(
    "li", {},
    make("span", { className: "kind" }, words),
    make("span", { className: "amount" }, `${sign}${amount.toLocaleString("en")}`),
    make("span", { className: "for quiet", title: about }, about),
    make("time", { className: "quiet", dateTime: time }, moment(time)),
  );
  Object.assign(line.dataset, { id: entryId, kind, job: jobId ?? "" });
  return line;
}

button.onclick = () => {
  dialog.showModal();
  readEntries().catch(handlers.report);
};
more.onclick = () => readMore().catch(handlers.report);
action(dialog, "close").onclick = () => dialog.close();
dialog.onclick = ({ target }) => target === dialog && dialog.close(); // beside the panel
