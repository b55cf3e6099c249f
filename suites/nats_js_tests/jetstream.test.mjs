// Streams and consumers by @nats-io/jetstream.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connect, nanos } from "@nats-io/transport-node";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager, RetentionPolicy } from "@nats-io/jetstream";

let nc, js, jsm;
let made = 0;
before(async () => {
  nc = await connect({ servers: "127.0.0.1:4222", name: "jetstream" });
  js = jetstream(nc);
  jsm = await jetstreamManager(nc);
});
after(async () => { await nc.close(); });

/** Creates a stream of one subject with `count` messages, and returns the name, which is the subject too. */
async function stream(config = {}, count = 0) {
  const name = `JS_${process.pid}_${made++}`;
  await jsm.streams.add({ name, subjects: [name, `${name}.>`], ...config });
  for (let n = 1; n <= count; n++) await js.publish(name, `${n}`);
  return name;
}

test("jetstream: account information", async () => {
  const info = await jsm.getAccountInfo();
  assert.equal(typeof info.streams, "number");
  assert.ok(info.api.total >= 0);
});

test("jetstream: add, update, purge and delete a stream", async () => {
  const name = await stream({ max_msgs: 10 }, 3);
  assert.equal((await jsm.streams.info(name)).state.messages, 3);
  const updated = await jsm.streams.update(name, { max_msgs: 2 });
  assert.equal(updated.config.max_msgs, 2);
  assert.equal((await jsm.streams.info(name)).state.messages, 2);
  assert.equal((await jsm.streams.purge(name)).purged, 2);
  assert.ok(await jsm.streams.delete(name));
  await assert.rejects(jsm.streams.info(name), (error) => error.code === 10059);
});

test("jetstream: list streams and names", async () => {
  const name = await stream();
  const names = [];
  for await (const found of jsm.streams.names()) names.push(found);
  assert.ok(names.includes(name));
  const listed = await jsm.streams.list(`${name}.a`).next();
  assert.deepEqual(listed.map((info) => info.config.name), [name]);
});

test("jetstream: a message id is stored once", async () => {
  const name = await stream();
  assert.equal((await js.publish(name, "a", { msgID: "x" })).duplicate, false);
  assert.equal((await js.publish(name, "a", { msgID: "x" })).duplicate, true);
  assert.equal((await jsm.streams.info(name)).state.messages, 1);
});

test("jetstream: an expected last sequence refuses others", async () => {
  const name = await stream({}, 1);
  await assert.rejects(js.publish(name, "", { expect: { lastSequence: 7 } }), (error) => error.code === 10071);
  await js.publish(name, "", { expect: { lastSequence: 1, streamName: name } });
});

test("jetstream: messages by sequence and by subject", async () => {
  const name = await stream({ allow_direct: true }, 3);
  assert.equal((await jsm.streams.getMessage(name, { seq: 2 })).string(), "2");
  assert.equal((await jsm.streams.getMessage(name, { last_by_subj: name })).string(), "3");
  assert.equal((await jsm.direct.getMessage(name, { seq: 1 })).string(), "1");
  assert.equal((await jsm.direct.getMessage(name, { last_by_subj: name })).seq, 3);
});

test("jetstream: a batch of direct gets", async () => {
  const name = await stream({ allow_direct: true }, 5);
  const found = [];
  for await (const message of await jsm.direct.getBatch(name, { seq: 1, batch: 5 })) found.push(message.string());
  assert.deepEqual(found, ["1", "2", "3", "4", "5"]);
});

test("jetstream: delete a message", async () => {
  const name = await stream({}, 3);
  assert.ok(await jsm.streams.deleteMessage(name, 2));
  assert.deepEqual((await jsm.streams.info(name, { deleted_details: true })).state.deleted, [2]);
});

test("jetstream: a durable consumer fetches and acknowledges", async () => {
  const name = await stream({}, 10);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  const consumer = await js.consumers.get(name, "d");
  const found = [];
  for await (const message of await consumer.fetch({ max_messages: 10, expires: 5000 })) {
    found.push(message.seq);
    await message.ackAck();
  }
  assert.deepEqual(found, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  const info = await consumer.info();
  assert.equal(info.num_ack_pending, 0);
  assert.equal(info.ack_floor.stream_seq, 10);
});

test("jetstream: consume goes on while messages come", async () => {
  const name = await stream();
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  const consumer = await js.consumers.get(name, "d");
  const messages = await consumer.consume({ max_messages: 5 });
  let next = 1;
  const done = (async () => {
    for await (const message of messages) {
      assert.equal(message.seq, next++);
      message.ack();
      if (next > 50) break;
    }
  })();
  for (let n = 1; n <= 50; n++) await js.publish(name);
  await done;
});

test("jetstream: next without a message ends after its time", async () => {
  const name = await stream();
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  assert.equal(await (await js.consumers.get(name, "d")).next({ expires: 1000 }), null);
});

test("jetstream: nak delivers again, term does not", async () => {
  const name = await stream({}, 1);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  const consumer = await js.consumers.get(name, "d");
  (await consumer.next({ expires: 5000 })).nak();
  const again = await consumer.next({ expires: 5000 });
  assert.ok(again.redelivered);
  assert.equal(again.seq, 1);
  again.term("enough");
  await nc.flush();
  assert.equal(await consumer.next({ expires: 1000 }), null);
});

test("jetstream: a message without an acknowledgement comes again", async () => {
  const name = await stream({}, 1);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit, ack_wait: nanos(500) });
  const consumer = await js.consumers.get(name, "d");
  assert.equal((await consumer.next({ expires: 5000 })).info.deliveryCount, 1);
  const again = await consumer.next({ expires: 5000 });
  assert.equal(again.info.deliveryCount, 2);
  await again.ackAck();
});

test("jetstream: consumers by filter, start and policy", async () => {
  const name = await stream();
  for (const tail of ["a", "b", "a", "b"]) await js.publish(`${name}.${tail}`);
  const pending = async (config) => (await jsm.consumers.add(name, { ack_policy: AckPolicy.None, ...config })).num_pending;
  assert.equal(await pending({ filter_subject: `${name}.a` }), 2);
  assert.equal(await pending({ filter_subjects: [`${name}.a`, `${name}.b`] }), 4);
  assert.equal(await pending({ deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 3 }), 2);
  assert.equal(await pending({ deliver_policy: DeliverPolicy.New }), 0);
  assert.equal(await pending({ deliver_policy: DeliverPolicy.LastPerSubject, filter_subject: `${name}.*` }), 2);
});

test("jetstream: an ordered consumer", async () => {
  const name = await stream({}, 20);
  const consumer = await js.consumers.get(name);
  const found = [];
  for await (const message of await consumer.fetch({ max_messages: 20, expires: 5000 })) found.push(message.seq);
  assert.deepEqual(found, Array.from({ length: 20 }, (_, n) => n + 1));
});

test("jetstream: pause and resume a consumer", async () => {
  const name = await stream({}, 1);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  assert.ok((await jsm.consumers.pause(name, "d", new Date(Date.now() + 60000))).paused);
  assert.equal((await jsm.consumers.resume(name, "d")).paused, false);
  assert.equal((await (await js.consumers.get(name, "d")).next({ expires: 5000 })).seq, 1);
});

test("jetstream: update, list and delete consumers", async () => {
  const name = await stream();
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  assert.equal((await jsm.consumers.update(name, "d", { description: "new" })).config.description, "new");
  assert.deepEqual((await jsm.consumers.list(name).next()).map((info) => info.name), ["d"]);
  assert.ok(await jsm.consumers.delete(name, "d"));
  await assert.rejects(jsm.consumers.info(name, "d"), (error) => error.code === 10014);
});

test("jetstream: a work queue removes acknowledged messages", async () => {
  const name = await stream({ retention: RetentionPolicy.Workqueue }, 2);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  await (await (await js.consumers.get(name, "d")).next({ expires: 5000 })).ackAck();
  assert.equal((await jsm.streams.info(name)).state.messages, 1);
  await assert.rejects(jsm.consumers.add(name, { durable_name: "e", ack_policy: AckPolicy.Explicit }), (error) => error.code === 10099);
});

test("jetstream: interest keeps what a consumer wants", async () => {
  const name = await stream({ retention: RetentionPolicy.Interest }, 1);
  assert.equal((await jsm.streams.info(name)).state.messages, 0);
  await jsm.consumers.add(name, { durable_name: "d", ack_policy: AckPolicy.Explicit });
  await js.publish(name);
  assert.equal((await jsm.streams.info(name)).state.messages, 1);
});

test("jetstream: limits of age, size and messages a subject", async () => {
  const name = await stream({ max_msgs_per_subject: 1, max_msg_size: 10 });
  await js.publish(name, "a");
  await js.publish(name, "b");
  assert.equal((await jsm.streams.info(name)).state.messages, 1);
  await assert.rejects(js.publish(name, "more than ten bytes"), (error) => error.code === 10054);
  await jsm.streams.update(name, { max_age: nanos(100), duplicate_window: nanos(100) });
  const began = Date.now();
  while ((await jsm.streams.info(name)).state.messages > 0 && Date.now() - began < 20000);
  assert.equal((await jsm.streams.info(name)).state.messages, 0);
});
