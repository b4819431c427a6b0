// What the Node drivers share: the same command line, marks and clock as common.py.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";

export const URL = process.env.BENCH_URL;
export const modules = createRequire(path.join(process.env.BENCH_MODULES, "package.json"));
const LONG = "long";
const CROWD = 20;
const SAMPLE_MS = 10_000;
const RECORD = 16;

const marks = fs.openSync(process.env.BENCH_MARKS, "a");
const record = Buffer.alloc(RECORD);
record.writeBigUInt64LE(BigInt(process.pid), 0);

export async function noop(data) {
  record.writeBigUInt64LE(process.hrtime.bigint(), 8);
  fs.writeSync(marks, record);
  if (data === LONG) await sleep(300_000);
}

// `open(callers)` gives { one, bulk, close }.
export async function run(open, prepare, work) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    strict: false, // a driver may have options of its own
    options: {
      count: { type: "string", default: "1" },
      seconds: { type: "string", default: "30" },
      by: { type: "string", default: "1000" },
      warm: { type: "string", default: "0" },
      data: { type: "string", default: "x".repeat(100) },
    },
  });
  const { count, seconds, by, warm, data } = values;
  const options = { count: +count, seconds: +seconds, by: +by, warm: +warm, data };
  const [command] = positionals;
  if (command === "work") return await work();
  if (command === "prepare") await prepare();
  else console.log(JSON.stringify(await measured(open, command, options)));
  process.exit(0);
}

async function measured(open, command, options) {
  const calls = await open(command === "crowd" ? CROWD : 1);
  try {
    if (command === "latency") return { sent: await latency(calls, options) };
    const step = { one, bulk, crowd }[command];
    if (options.warm) await step(calls, { ...options, count: options.warm }, Infinity);
    const began = performance.now();
    const jobs = await step(calls, options, began + options.seconds * 1000);
    return { jobs, seconds: (performance.now() - began) / 1000 };
  } finally {
    await calls.close();
  }
}

async function one(calls, { count, data }, deadline) {
  for (let done = 0; done < count; done++) {
    if (performance.now() > deadline) return done;
    await calls.one(data);
  }
  return count;
}

async function bulk(calls, { count, data, by }, deadline) {
  let done = 0;
  while (done < count && performance.now() < deadline) {
    const size = Math.min(by, count - done);
    await calls.bulk(Array(size).fill(data));
    done += size;
  }
  return done;
}

async function crowd(calls, { count, data }, deadline) {
  const share = { count: Math.floor(count / CROWD), data };
  const done = await Promise.all(Array.from({ length: CROWD }, () => one(calls, share, deadline)));
  return done.reduce((sum, each) => sum + each, 0);
}

async function latency(calls, { count, data, seconds }) {
  const sent = [];
  const before = marked();
  let last = 0;
  const deadline = performance.now() + seconds * 1000;
  while (sent.length < count && performance.now() < deadline) {
    await sleep(20 + Math.random() * 60 + Math.random() * 2 * last);
    const began = performance.now();
    sent.push(Number(process.hrtime.bigint()));
    await calls.one(data);
    if (!(await reached(before + sent.length))) break;
    last = performance.now() - began;
  }
  return sent;
}

async function reached(count) {
  const deadline = performance.now() + SAMPLE_MS;
  while (marked() < count) {
    if (performance.now() > deadline) return false;
    await sleep(2);
  }
  return true;
}

const marked = () => Math.floor(fs.fstatSync(marks).size / RECORD);
