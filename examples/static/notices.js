// What is said to the user: seen for a while, or only heard from a screen reader.
import { at, make } from "./dom.js";

const NOTICE_MS = 10_000;
const REMEMBERED = 20;
const notices = at("notices");
const announcer = at("announcer");

// The same thing is not said twice at once.
export function notify({ message }) {
  if ([...notices.children].some((notice) => notice.textContent === message)) return;
  const notice = make("p", {}, message);
  notices.append(notice);
  setTimeout(() => notice.remove(), NOTICE_MS);
}

// Each is a line of its own in a log, so that those which come together are all read out.
export function announce(message) {
  announcer.append(make("p", {}, message));
  if (announcer.childElementCount > REMEMBERED) announcer.firstElementChild.remove();
}
