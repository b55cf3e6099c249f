// Key-value buckets and object stores by @nats-io/kv and @nats-io/obj.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connect } from "@nats-io/transport-node";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";

let nc;
let made = 0;
before(async () => { nc = await connect({ servers: "127.0.0.1:4222", name: "layers" }); });
after(async () => { await nc.close(); });

const bucket = (options = {}) => new Kvm(nc).create(`kv_${process.pid}_${made++}`, options);
const store = (options = {}) => new Objm(nc).create(`obj_${process.pid}_${made++}`, options);

function readable(bytes) {
  return new ReadableStream({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
}

async function all(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

test("kv: put, get, create, update and delete", async () => {
  const kv = await bucket();
  assert.equal(await kv.put("a", "1"), 1);
  assert.equal((await kv.get("a")).string(), "1");
  await assert.rejects(kv.create("a", "2"));
  assert.equal(await kv.update("a", "3", 1), 2);
  await assert.rejects(kv.update("a", "4", 1), (error) => error.code === 10071);
  await kv.delete("a");
  assert.equal((await kv.get("a")).operation, "DEL");
  assert.equal(await kv.create("a", "5"), 4);
});

test("kv: history and purge", async () => {
  const kv = await bucket({ history: 5 });
  for (let n = 0; n < 7; n++) await kv.put("a", `${n}`);
  const values = async () => {
    const found = [];
    for await (const entry of await kv.history({ key: "a" })) found.push(entry.string());
    return found;
  };
  assert.deepEqual(await values(), ["2", "3", "4", "5", "6"]);
  await kv.purge("a");
  assert.deepEqual(await values(), [""]);
});

test("kv: keys with a filter", async () => {
  const kv = await bucket();
  for (const key of ["a.x", "a.y", "b.x"]) await kv.put(key, "");
  const found = [];
  for await (const key of await kv.keys("a.*")) found.push(key);
  assert.deepEqual(found.sort(), ["a.x", "a.y"]);
});

test("kv: a watcher gets the present values, then the changes", async () => {
  const kv = await bucket();
  await kv.put("a", "1");
  const watcher = await kv.watch();
  const found = [];
  for await (const entry of watcher) {
    found.push(`${entry.key}=${entry.operation === "PUT" ? entry.string() : entry.operation}`);
    if (found.length === 1) await kv.put("b", "2");
    if (found.length === 2) await kv.delete("a");
    if (found.length === 3) break;
  }
  assert.deepEqual(found, ["a=1", "b=2", "a=DEL"]);
});

test("kv: a key with a time to live goes", async () => {
  const kv = await bucket({ markerTTL: 2000 });
  await kv.create("a", "1", "1s");
  let entry = await kv.get("a");
  const began = Date.now();
  while (entry?.operation === "PUT" && Date.now() - began < 20000) entry = await kv.get("a");
  assert.notEqual(entry?.operation, "PUT");
});

test("kv: status and destroy", async () => {
  const kv = await bucket({ history: 3, description: "some" });
  await kv.put("a", "1");
  const status = await kv.status();
  assert.equal(status.values, 1);
  assert.equal(status.history, 3);
  assert.ok(await kv.destroy());
  await assert.rejects(kv.put("a", "1"));
});

test("kv: list buckets", async () => {
  const kv = await bucket();
  const found = [];
  for await (const status of new Kvm(nc).list()) found.push(status.bucket);
  assert.ok(found.includes((await kv.status()).bucket));
});

test("obj: an object of several chunks comes back unchanged", async () => {
  const objects = await store();
  const bytes = new Uint8Array(1_000_000).map((_, n) => n % 251);
  const info = await objects.put({ name: "large", options: { max_chunk_size: 64 * 1024 } }, readable(bytes));
  assert.equal(info.size, bytes.length);
  assert.equal(info.chunks, 16);
  const found = await objects.get("large");
  assert.deepEqual(new Uint8Array(await all(found.data)), bytes);
  assert.ok(!await found.error);
});

test("obj: replace, list and delete objects", async () => {
  const objects = await store();
  await objects.putBlob({ name: "a" }, new Uint8Array([1]));
  await objects.putBlob({ name: "a" }, new Uint8Array([2, 3]));
  await objects.putBlob({ name: "b" }, new Uint8Array([]));
  assert.deepEqual(new Uint8Array(await objects.getBlob("a")), new Uint8Array([2, 3]));
  assert.deepEqual((await objects.list()).map((info) => info.name).sort(), ["a", "b"]);
  assert.ok((await objects.delete("a")).success);
  assert.equal(await objects.getBlob("a"), null);
});

test("obj: links", async () => {
  const objects = await store();
  await objects.putBlob({ name: "a" }, new Uint8Array([1, 2]));
  await objects.link("also", await objects.info("a"));
  assert.deepEqual(new Uint8Array(await objects.getBlob("also")), new Uint8Array([1, 2]));
});

test("obj: a sealed store refuses objects", async () => {
  const objects = await store();
  await objects.putBlob({ name: "a" }, new Uint8Array([1]));
  assert.ok((await objects.seal()).sealed);
  await assert.rejects(objects.putBlob({ name: "b" }, new Uint8Array([1])));
});

test("obj: a watcher gets objects", async () => {
  const objects = await store();
  await objects.putBlob({ name: "a" }, new Uint8Array([1]));
  for await (const info of await objects.watch({ includeHistory: true })) {
    assert.equal(info.name, "a");
    break;
  }
});
