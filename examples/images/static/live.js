// One stream of events for all images: over HTTP/1.1 a browser has about six connections to a server, so that one
// stream for each job would leave none for uploads and pictures.
import { problemOf } from "../common/http.js";

const STREAM = "/events?queue=images";
const VERBS = ["create", "claim", "progress", "parts", "complete", "fail", "cancel", "reject", "reap", "release", "requeue"];
const AGAIN_MS = 3000;

// `onGap`: events may be missing, so what is shown has to be read again. `onRefused`: the stream needs a key, or another
// one. The answer stops it.
export function follow({ onEvent, onGap, onState, onRefused }) {
  let source;
  let stopped = false;

  function open() {
    source = new EventSource(STREAM);
    for (const verb of VERBS) source.addEventListener(verb, (event) => onEvent(JSON.parse(event.data)));
    source.addEventListener("reset", onGap);
    source.onopen = () => onState("live");
    source.onerror = () => {
      onState("reconnecting");
      if (source.readyState === EventSource.CLOSED) openAgain(); // otherwise it does, and continues where it was
    };
  }

  async function openAgain() {
    const refused = await refusal();
    if (stopped) return;
    if (refused) return onRefused(refused);
    setTimeout(() => {
      if (stopped) return;
      open();
      onGap();
    }, AGAIN_MS);
  }

  open();
  return () => {
    stopped = true;
    source.close();
  };
}

// An `EventSource` does not tell why it was closed.
async function refusal() {
  const reading = new AbortController();
  const answer = await fetch(STREAM, { signal: reading.signal }).catch(() => null);
  const refused = [401, 403].includes(answer?.status) ? await problemOf(answer) : null;
  reading.abort();
  return refused;
}
