// Core NATS by @nats-io/transport-node.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connect, createInbox, errors, headers } from "@nats-io/transport-node";

let nc;
before(async () => { nc = await connect({ servers: "127.0.0.1:4222", name: "core" }); });
after(async () => { await nc.close(); });

/** Collects `count` messages of a subscription. */
async function take(sub, count) {
  const found = [];
  for await (const message of sub) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}

test("core: a subscriber gets messages in the publisher's order", async () => {
  const subject = createInbox();
  const sub = nc.subscribe(subject, { max: 100 });
  for (let n = 0; n < 100; n++) nc.publish(subject, `${n}`);
  assert.deepEqual((await take(sub, 100)).map((m) => m.string()), Array.from({ length: 100 }, (_, n) => `${n}`));
});

test("core: wildcards match as many tokens as they should", async () => {
  const root = createInbox();
  const one = nc.subscribe(`${root}.*`);
  const all = nc.subscribe(`${root}.>`);
  for (const tail of ["a", "a.b", "a.b.c"]) nc.publish(`${root}.${tail}`);
  await nc.flush();
  await Promise.all([one.drain(), all.drain()]);
  assert.equal(one.getReceived(), 1);
  assert.equal(all.getReceived(), 3);
});

test("core: a queue group gets each message once", async () => {
  const subject = createInbox();
  const members = [1, 2, 3].map(() => nc.subscribe(subject, { queue: "workers" }));
  const plain = nc.subscribe(subject);
  await nc.flush();
  for (let n = 0; n < 60; n++) nc.publish(subject);
  await nc.flush();
  await Promise.all([...members, plain].map((sub) => sub.drain()));
  assert.equal(members.reduce((sum, sub) => sum + sub.getReceived(), 0), 60);
  assert.equal(plain.getReceived(), 60);
});

test("core: a subscription with a maximum ends by itself", async () => {
  const subject = createInbox();
  const sub = nc.subscribe(subject, { max: 3 });
  for (let n = 0; n < 5; n++) nc.publish(subject);
  let count = 0;
  for await (const _ of sub) count++;
  assert.equal(count, 3);
  assert.ok(sub.isClosed());
});

test("core: headers arrive, with several values of one name", async () => {
  const subject = createInbox();
  const sub = nc.subscribe(subject, { max: 1 });
  const sent = headers();
  sent.append("Many", "one");
  sent.append("Many", "two");
  nc.publish(subject, "body", { headers: sent });
  const [message] = await take(sub, 1);
  assert.deepEqual(message.headers.values("Many"), ["one", "two"]);
  assert.equal(message.string(), "body");
});

test("core: a request gets an answer", async () => {
  const subject = createInbox();
  nc.subscribe(subject, { max: 1, callback: (_, message) => message.respond(`${message.string()}!`) });
  assert.equal((await nc.request(subject, "hello", { timeout: 5000 })).string(), "hello!");
});

test("core: a request without a responder fails at once", async () => {
  await assert.rejects(nc.request(createInbox(), "", { timeout: 5000 }), (error) =>
    error instanceof errors.NoRespondersError || error.cause instanceof errors.NoRespondersError);
});

test("core: several answers to one request", async () => {
  const subject = createInbox();
  for (let n = 0; n < 3; n++) nc.subscribe(subject, { max: 1, callback: (_, message) => message.respond(`${n}`) });
  await nc.flush();
  const found = [];
  for await (const answer of await nc.requestMany(subject, "", { strategy: "count", maxMessages: 3, maxWait: 5000 })) {
    found.push(answer.string());
  }
  assert.deepEqual(found.sort(), ["0", "1", "2"]);
});

test("core: draining a connection delivers all messages before it closes", async () => {
  const other = await connect({ servers: "127.0.0.1:4222" });
  const subject = createInbox();
  let count = 0;
  other.subscribe(subject, { callback: () => { count++; } });
  await other.flush();
  for (let n = 0; n < 1000; n++) nc.publish(subject);
  await nc.flush();
  await other.drain();
  assert.equal(count, 1000);
});

test("core: payloads of zero bytes and of the limit", async () => {
  const subject = createInbox();
  const sub = nc.subscribe(subject, { max: 2 });
  const large = new Uint8Array(nc.info.max_payload).fill(7);
  nc.publish(subject);
  nc.publish(subject, large);
  const [empty, full] = await take(sub, 2);
  assert.equal(empty.data.length, 0);
  assert.deepEqual(full.data, large);
});

test("core: without echo a connection does not get its own messages", async () => {
  const silent = await connect({ servers: "127.0.0.1:4222", noEcho: true });
  const subject = createInbox();
  const sub = silent.subscribe(subject);
  silent.publish(subject);
  await silent.flush();
  await sub.drain();
  assert.equal(sub.getReceived(), 0);
  await silent.close();
});

test("core: rtt and statistics", async () => {
  assert.ok(await nc.rtt() >= 0);
  assert.ok(nc.stats().outMsgs > 0);
});
