// A worker without any library. `node worker.mjs https://jobs.example.com`, with its key in HOLDFAST_WORKER_KEY.
// After SIGTERM, jobs have HOLDFAST_STOP_GRACE_SECONDS to end (20); then they are released for another worker.
const [url = "http://127.0.0.1:8080"] = process.argv.slice(2);
const SLOTS = 4, BEAT_MS = 3_000, LAST_WORDS_MS = 3_000;
const GRACE_MS = 1_000 * (process.env.HOLDFAST_STOP_GRACE_SECONDS ?? 20);
const instanceId = crypto.randomUUID(), held = new Map(), stopping = new AbortController();
const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));

// What it does, by job type: takes the payload, returns the result; what it throws fails the job.
const handlers = {
  sum: async ({ numbers }) => numbers.reduce((sum, number) => sum + number, 0),
  charge: async ({ card }) => { throw { code: "E_NO_CARD", message: `there is no card ${card}`, permanent: true }; },
  count: async ({ to }, job) => {
    for (let n = job.checkpoint ?? 1; n <= to && !job.signal.aborted; n++) {
      await job.progress({ progressPercent: (100 * n) / to, currentStep: `counted to ${n}`, checkpoint: n });
      await pause(100);
    }
    return to;
  },
};

// Until it is answered: a claim has its requestId and every other word its lease token, so nothing is done twice.
async function call(verb, body, signal) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${process.env.HOLDFAST_WORKER_KEY}` };
  for (let tries = 0; ; tries++) {
    const request = fetch(`${url}/api/worker/${verb}`, { method: "POST", headers, body: JSON.stringify(body), signal });
    const answer = await request.catch(({ message }) => ({ status: 503, json: () => ({ detail: message }) }));
    if (answer.status < 300) return answer.status === 204 ? null : answer.json();
    const { detail, code } = await answer.json();
    if (signal?.aborted || (answer.status < 500 && answer.status !== 429)) throw { code, message: `${verb}: ${detail}` };
    await pause(Math.random() * Math.min(5_000, 100 * 2 ** tries));
  }
}

async function run({ jobId, leaseToken, jobType, payload, checkpoint }) {
  const lease = { jobId, leaseToken }, ending = new AbortController();
  const progress = (body) => call("progress", { ...lease, ...body });
  held.set(leaseToken, { lease, ending });
  try {
    const result = await handlers[jobType](payload, { checkpoint, progress, signal: ending.signal });
    await (ending.signal.aborted ? call("release", lease) : call("complete", { ...lease, result }));
  } catch ({ code = "E_JAVASCRIPT", message, permanent = false }) {
    const failure = { ...lease, errorCode: code, message, permanent };
    if (code !== "lease_lost") await call("fail", failure).catch(({ message }) => console.error(message));
  }
  held.delete(leaseToken);
}

async function beat() {
  const leases = [...held.values()].map(({ lease }) => lease);
  const news = await call("heartbeat", { status: leases.length ? "busy" : "idle", instanceId, slots: SLOTS, leases });
  const over = new Set([...news.lost, ...news.cancel]);
  for (const { lease, ending } of held.values()) if (over.has(lease.jobId)) ending.abort();
}

for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => stopping.abort());
setInterval(() => beat().catch(({ message }) => console.error(message)), BEAT_MS);
console.log(`working for ${url}`);
while (!stopping.signal.aborted) {
  const jobTypes = Object.keys(handlers), limit = SLOTS - held.size, requestId = crypto.randomUUID();
  const claim = { jobTypes, limit, waitSeconds: 20, requestId, instanceId };
  const claimed = limit ? await call("claim", claim, stopping.signal).catch(refused) : await pause(20);
  claimed?.jobs.forEach(run);
}
for (const until = Date.now() + GRACE_MS; held.size && Date.now() < until; ) await pause(20);
await Promise.race([pause(LAST_WORDS_MS), Promise.allSettled([...held.values()].map(({ lease }) => call("release", lease)))]);
process.exit(0);

function refused({ message }) {
  if (stopping.signal.aborted) return;
  console.error(message);
  process.exit(1);
}
