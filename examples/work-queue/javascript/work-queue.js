// A work queue in JavaScript: `node work-queue.js add 100` adds jobs, `node work-queue.js work` does jobs until
// none is left.

import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

const { NATS_URL = "nats://127.0.0.1:4222", MONITOR_URL = "http://127.0.0.1:8222" } = process.env;

async function add(js, count) {
  // No publish waits for another: the server syncs those together that arrive during a sync.
  const jobs = Array.from({ length: count }, (_, i) => js.publish("jobs.javascript", `job ${i}`));
  await Promise.all(jobs);
  console.log(`javascript: ${count} jobs are synced`);
  await printBatching();
}

async function work(js) {
  // All workers, in every language, share this consumer: each job goes to one of them.
  const manager = await jetstreamManager(js.nc);
  await manager.consumers.add("JOBS", { durable_name: "workers", ack_policy: "explicit" });
  const workers = await js.consumers.get("JOBS", "workers");
  let done = 0;
  for (;;) {
    const before = done;
    const jobs = await workers.fetch({ max_messages: 16, expires: 1000 });
    for await (const job of jobs) {
      console.log(`javascript: ${job.subject} ${job.string()}`);
      // The acknowledgement removes the job. If a crash loses it, the job comes again, to any worker.
      job.ack();
      done += 1;
    }
    if (done === before) break;
  }
  console.log(`javascript: ${done} jobs are done`);
}

// Prints what the server's controller decided for its syncs.
async function printBatching() {
  const answer = await fetch(`${MONITOR_URL}/varz`);
  const { log_syncs: syncs } = (await answer.json()).batching;
  const reasons = JSON.stringify(syncs.by_reason);
  console.log(`the server's syncs: ${syncs.batches} for ${syncs.items} writes, limit ${syncs.limit}, by reason ${reasons}`);
}

const [command, count] = process.argv.slice(2);
const client = await connect({ servers: NATS_URL });
try {
  if (command === "add" && count > 0) await add(jetstream(client), Number(count));
  else if (command === "work") await work(jetstream(client));
  else throw new Error("expected `add COUNT` or `work`");
} finally {
  await client.drain();
}
