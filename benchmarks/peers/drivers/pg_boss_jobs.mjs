// pg-boss: batches of 100, fetched again at once while they come back full, woken by notifications.
import { URL, modules, noop, run } from "./common.mjs";

const { PgBoss } = modules("pg-boss");
const QUEUE = "noop";

async function started(options) {
  const boss = new PgBoss({ connectionString: URL, ...options });
  boss.on("error", console.error);
  return await boss.start();
}

async function open() {
  const boss = await started({ supervise: false, schedule: false });
  return {
    one: (data) => boss.send(QUEUE, { data }),
    bulk: (data) => boss.insert(QUEUE, data.map((each) => ({ data: { data: each } }))),
    close: () => boss.stop({ graceful: false }),
  };
}

async function prepare() {
  const boss = await started({ schedule: false });
  await boss.createQueue(QUEUE, { notify: true });
  await boss.stop({ graceful: false });
}

async function work() {
  const boss = await started({ useListenNotify: true });
  const fetching = { batchSize: 100, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
  await boss.work(QUEUE, fetching, (jobs) => Promise.all(jobs.map((job) => noop(job.data.data))));
}

await run(open, prepare, work);
