// Tests the parts of the page that need no browser: `npm test`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, duration, fit, regret, short, size, span } from "../src/format.js";
import { events } from "../src/happened.js";
import { SAMPLES_MAX, gaps, join, rates } from "../src/history.js";
import { dump } from "../src/messages.js";
import { parse, write } from "../src/moment.js";

test("numbers have three digits and a unit", () => {
  assert.deepEqual([0, 7, 0.5, 999, 1000, 1234567].map(short), ["0", "7", "0.50", "999", "1 k", "1.23 M"]);
  assert.deepEqual([0, 1023, 1536, 2 ** 30].map(bytes), ["0 B", "1023 B", "1.50 KiB", "1 GiB"]);
  assert.deepEqual([5, 1500, 2e6, 3e9, 200e9].map(duration), ["5 ns", "1.50 µs", "2 ms", "3 s", "3 min"]);
  assert.deepEqual([14, 200, 10800, 200000].map(span), ["14 s", "3 min", "3 h", "2 d"]);
  assert.equal(size(18446744073709551615, "rows"), "no limit");
});

test("changes of leaders, elections and moves are told, the newest first", () => {
  const h = { uptime_ms: [1, 2, 3, 4], leader: ["n1", "n1", "", "n2"], elections: [0, 0, 0, 2], moving: [0, 3, 3, 0] };
  assert.deepEqual(events(h), [
    [4, "no stream moves any more"],
    [4, "n2 leads the group of all nodes"],
    [4, "2 elections in the groups of this node"],
    [3, "no node leads the group of all nodes any more; n1 did"],
    [2, "3 streams begin to move"],
  ]);
  assert.deepEqual(events({}), []);
});

test("bytes are shown with their places and letters", () => {
  const lines = dump(`1b5b${"61".repeat(15)}`).split("\n");
  assert.deepEqual(lines, [
    "000000  1b 5b 61 61 61 61 61 61 61 61 61 61 61 61 61 61  .[aaaaaaaaaaaaaa",
    `000010  ${"61".padEnd(47)}  a`,
  ]);
  assert.equal(dump(""), "");
});

test("a missing figure is named as missing", () => {
  for (const write of [short, bytes, duration, span]) {
    assert.equal(write(undefined), "not given");
    assert.equal(write(null), "not given");
    assert.equal(write(NaN), "not given");
  }
  assert.match(regret({}, undefined), /does not say/);
  assert.match(fit(null, "rows"), /no fit yet/);
});

test("the regret says what waiting cost", () => {
  const none = { batches: 1200, waits: 0, waits_vain: 0, regret_ns: 0, items: 5000 };
  assert.match(regret(none), /None of 1,200 batches/);
  const some = { ...none, waits: 3, waits_vain: 1, regret_ns: 12e6 };
  assert.match(regret(some, { regret_ns: [1000, null], items: [10, 0] }), /3 of 1,200 .* 1 of them in vain.*12 ms.*100 ns an item/);
});

test("a route survives the hash, and nonsense is the overview", () => {
  const route = { page: "boundaries", part: "a b/<i>", at: 1795755601123, span: 60 };
  assert.deepEqual(parse(write(route)), route);
  assert.deepEqual(parse("#/nowhere?at=-1&span=1e9"), { page: "overview", part: "", at: undefined, span: 600 });
  assert.equal(parse("#/boundaries/%E0%A4%A").part, "%E0%A4%A");
  assert.equal(parse("").page, "overview");
});

test("a history is joined by time, keeps its length, and fills names that come and go", () => {
  const a = { uptime_ms: [1, 2], items: [5, 6], by_reason: { drained: [1, 1] } };
  const b = { uptime_ms: [2, 3], items: [6, 7], by_reason: { limit: [0, 4] } };
  assert.deepEqual(join(a, b), {
    uptime_ms: [1, 2, 3], items: [5, 6, 7], by_reason: { drained: [1, 1, 0], limit: [0, 0, 4] },
  });
  assert.equal(join(a, { uptime_ms: [1, 2], items: [5, 6] }), a);
  assert.equal(join(a, undefined), a);
  let kept;
  for (let n = 0; n < 86_400; n += 10) {
    const ms = Array.from({ length: 10 }, (_, i) => (n + i) * 1000);
    kept = join(kept, { uptime_ms: ms, items: ms, by_reason: { drained: ms } });
  }
  assert.deepEqual([kept.uptime_ms.length, kept.items.length, kept.by_reason.drained.length], [SAMPLES_MAX, SAMPLES_MAX, SAMPLES_MAX]);
});

test("a gap breaks the line", () => {
  assert.deepEqual(gaps([1, 2, 12], [[5, 6, 7]], [1000, 1000, 10_000], 1000), [[1, 2, 7, 12], [5, 6, null, 7]]);
  assert.deepEqual(rates([10, 5], [500, 0]), [20, null]);
});
