// Graphile Worker, by default or with its local queue.
import { URL, modules, noop, run } from "./common.mjs";

const { Logger, makeWorkerUtils, run: start, runMigrations } = modules("graphile-worker");

const LOCAL_QUEUE = {
  concurrentJobs: 24,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const quiet = new Logger(() => (level, message) => level === "error" && console.error(message));

async function open() {
  const utils = await makeWorkerUtils({ connectionString: URL, logger: quiet });
  return {
    one: (data) => utils.addJob("noop", { data }),
    bulk: (data) => utils.addJobs(data.map((each) => ({ identifier: "noop", payload: { data: each } }))),
    close: () => utils.release(),
  };
}

async function work() {
  const worker = process.argv.includes("--local") ? LOCAL_QUEUE : { concurrentJobs: 20, maxPoolSize: 20 };
  const taskList = { noop: ({ data }) => noop(data) };
  const runner = await start({ preset: { worker: { connectionString: URL, ...worker, logger: quiet } }, taskList });
  await runner.promise;
}

await run(open, () => runMigrations({ connectionString: URL, logger: quiet }), work);
