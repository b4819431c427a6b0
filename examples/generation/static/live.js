// Streams of events, one for each request that is followed. Over HTTP/1.1 a browser has about six connections to a
// server, which its windows share: only a few requests are followed at once, and none by a window that is hidden.
import { eventsOf } from "./api.js";

const STREAMS_MAX = 2;
const FIRST_MS = 500;
const LONGEST_MS = 15_000;
const CHANGES = ["create", "claim", "complete", "fail", "cancel", "reject", "reap", "release", "requeue"];

// `onChange(id)`: its status may be another one. `onParts(id, names)`: these images of it are made. `onBroken(id)`: the
// stream ended, or the server is gone.
export function createStreams({ onChange, onParts, onBroken }) {
  const open = new Map(); // by id
  const pauses = new Map(); // by id: how long to wait after the next failure
  const waiting = new Map(); // by id: the timer of the next try
  let wanted = [];

  function follow(ids) {
    wanted = document.hidden ? [] : ids.slice(0, STREAMS_MAX);
    for (const id of open.keys()) if (!wanted.includes(id)) close(id);
    for (const [id, timer] of waiting) if (!wanted.includes(id)) forgetTimer(id, timer);
    for (const id of pauses.keys()) if (!ids.includes(id)) pauses.delete(id);
    for (const id of wanted) if (!open.has(id) && !waiting.has(id)) start(id);
  }

  function start(id) {
    const source = new EventSource(eventsOf(id));
    open.set(id, source);
    for (const verb of CHANGES) source.addEventListener(verb, () => onChange(id));
    source.addEventListener("reset", () => onChange(id));
    source.addEventListener("parts", ({ data }) => onParts(id, namesOfFinished(JSON.parse(data))));
    source.onopen = () => pauses.delete(id);
    source.onerror = () => {
      close(id); // a new stream starts with the first event: it cannot miss one
      const pause = pauses.get(id) ?? FIRST_MS;
      pauses.set(id, Math.min(2 * pause, LONGEST_MS));
      waiting.set(id, setTimeout(() => again(id), pause));
      onBroken(id);
    };
  }

  function again(id) {
    waiting.delete(id);
    if (wanted.includes(id)) start(id);
  }

  function close(id) {
    open.get(id).close();
    open.delete(id);
  }

  function forgetTimer(id, timer) {
    clearTimeout(timer);
    waiting.delete(id);
  }

  return { follow };
}

const namesOfFinished = ({ parts }) => parts.filter(({ status }) => status === "completed").map(({ name }) => name);
