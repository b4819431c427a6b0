// One stream of events for all images: over HTTP/1.1 a browser has about six connections to a server, so that one
// stream for each job would leave none for uploads and pictures.

const STREAM = "/events?queue=images";
const VERBS = ["create", "claim", "progress", "parts", "complete", "fail", "cancel", "reject", "reap", "release", "requeue"];
const AGAIN_MS = 3000;

// `onGap`: events may be missing, so what is shown has to be read again.
export function follow({ onEvent, onGap, onState }) {
  const source = new EventSource(STREAM);
  for (const verb of VERBS) source.addEventListener(verb, (event) => onEvent(JSON.parse(event.data)));
  source.addEventListener("reset", onGap);
  source.onopen = () => onState("live");
  source.onerror = () => {
    onState("reconnecting");
    if (source.readyState !== EventSource.CLOSED) return; // it reconnects by itself, and continues where it was
    setTimeout(() => {
      follow({ onEvent, onGap, onState });
      onGap();
    }, AGAIN_MS);
  };
}
