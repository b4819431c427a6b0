// The states of a request, refusals and times, in words.
import { counted, moment } from "../common/dom.js";

const STATES = {
  queued: "Queued",
  running: "Running",
  completed: "Completed",
  failed: "Retrying",
  rejected: "Rejected",
  dead_letter: "Failed",
};

export const isActive = ({ status }) => ["queued", "running", "failed"].includes(status);
export const isCanceled = ({ error }) => error?.code === "canceled";

export const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

export function duration(seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export function stateInWords(request) {
  const { status, queuePosition, etaSeconds, count, finished, assets, startedAt, finishedAt } = request;
  if (isCanceled(request)) return "Canceled";
  const words = [STATES[status] ?? status];
  if (status === "queued" && queuePosition) {
    words.push(queuePosition === 1 ? "next in line" : `position ${queuePosition}`);
  }
  if (status === "queued" && etaSeconds !== undefined) words.push(`about ${duration(Math.max(1, etaSeconds))}`);
  if (status === "running") words.push(`${finished.size} of ${counted(count, "image")}`);
  if (status === "completed") {
    words.push(assets.length === count ? counted(count, "image") : `${assets.length} of ${counted(count, "image")}`);
    words.push(duration((new Date(finishedAt) - new Date(startedAt)) / 1000));
  }
  return words.join(" · ");
}

export function creditsInWords({ status, creditsReserved, creditsCharged, promised }) {
  if (creditsReserved) return `${counted(creditsReserved, "credit")} reserved`;
  const released = promised && promised - creditsCharged;
  const words = creditsCharged || status === "completed" ? [`${counted(creditsCharged, "credit")} paid`] : [];
  if (status === "rejected") words[0] = `${counted(creditsCharged, "credit")} not refunded`;
  if (released) words.push(`${counted(released, "credit")} released`);
  return words.join(", ") || "credits released";
}

// What went wrong, and what follows from it.
export function faultInWords(request) {
  const { status, error, retryCount } = request;
  if (!error || isCanceled(request)) return "";
  const reason = sentence(error.message);
  if (status === "failed") return `${reason} Attempt ${retryCount + 1} failed; another one follows.`;
  if (status === "rejected") return `${reason} Credits of rejected requests are not refunded.`;
  return `${reason} The credits of images that were not made are released.`;
}

// `texts`: what of the request was checked, such as "prompt or style".
export function refusalInWords({ status, code, message, retryAfter }, texts) {
  const refusal = (title, ...sentences) => ({ title, text: sentences.join(" ").trim() });
  if (code === "prompt_rejected") {
    return refusal("Not accepted", "Nothing was reserved.", `Change the ${texts} and try again.`);
  }
  if (code === "insufficient_credits") {
    return refusal("Not enough credits", sentence(message), "An operator can grant more.");
  }
  if (code === "quota_exceeded") return refusal("Quota used up", sentence(message), resetInWords(retryAfter));
  if (status === 0) {
    return refusal("Not sent", "The server cannot be reached.", "Try again: it will not become two requests.");
  }
  return refusal("Not accepted", sentence(message));
}

function resetInWords(retryAfter) {
  if (!retryAfter) return "";
  const time = new Date(Date.now() + 1000 * retryAfter);
  return `It resets on ${moment(time)}, in ${duration(retryAfter)}.`;
}
