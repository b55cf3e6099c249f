// A server with made-up figures, for work on the page and for tests of conditions that a real server has
// rarely: `node mock.mjs [PORT]`. `start` returns a handle whose `answer` a test may replace.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const dist = join(dirname(fileURLToPath(import.meta.url)), "../dist");
const FILES = {
  "/dashboard": ["index.html", "text/html; charset=utf-8"],
  "/dashboard/app.js": ["app.js", "text/javascript; charset=utf-8"],
  "/dashboard/app.css": ["app.css", "text/css; charset=utf-8"],
  "/dashboard/icon.svg": ["icon.svg", "image/svg+xml"],
};
// The policy of the server, src/page.rs, so that the page is tested under it.
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const wave = (i, period, low, high) => low + ((high - low) * (1 + Math.sin((2 * Math.PI * i) / period))) / 2;

function history(now, seconds, fields) {
  const first = Math.max(Math.floor(now) - seconds, 1);
  const at = Array.from({ length: Math.min(seconds, Math.floor(now) - first + 1) }, (_, i) => first + i);
  const list = (of) => at.map((i) => Math.round(of(i)));
  const all = { uptime_ms: list((i) => i * 1000), span_ms: list(() => 1000) };
  for (const [name, of] of Object.entries(fields)) {
    all[name] = typeof of === "function" ? list(of)
      : Object.fromEntries(Object.entries(of).map(([key, inner]) => [key, list(inner)]));
  }
  return all;
}

function boundary(name, unit, inBytes, now, seconds, scale) {
  const item = inBytes ? 900 : 1;
  const [a, b] = [180_000 * scale, inBytes ? 0.9 : 700];
  const sizes = [1, 2, 3, 5, 9, 17, 40, 80, 170, 340].map((n, i) => ({ items: n * item, cost_ns: (a + b * n * item) * (1 + 0.1 * Math.sin(i * 2)), batches: 8 }));
  const outcome = (most, n) => ({ items_per_s_max: most, batch_items: n, batch_ns: a + b * n * item, batches_per_s: 9000 / n });
  return {
    name, unit, size_unit: inBytes ? "bytes" : unit, limit: 640 * item, in_flight: 1, running: 1, reason: "efficiency", rate_per_s: 9000,
    model: { a_ns: a, a_err_ns: a / 40, b_ns: b, b_err_ns: b / 30, noise: 0.08 },
    batches: 81_000, items: 1_204_000, bytes: inBytes ? 1_204_000 * 900 : 0, items_max: 410, waits: 1200, waits_vain: 31, regret_ns: 8.1e9,
    resets: 2, clipped: 17, infeasible_ns: 0, infeasible: false, frozen: false,
    by_reason: { drained: 70_000, anticipate: 9000, efficiency: 1500, probe: 500 }, sizes,
    counterfactual: { now: outcome(1.1e6, 12), greedy: { ...outcome(null, 12), items_per_s_max: 1.2e6 }, half: outcome(0.9e6, 12), twice: outcome(1.15e6, 12) },
    history: seconds ? history(now, seconds, {
      limit: (i) => (i % 200 < 100 ? 640 : 452) * item, in_flight: () => 1, running: (i) => i % 2,
      items: (i) => wave(i, 90, 3000, 9000), bytes: (i) => (inBytes ? wave(i, 90, 3000, 9000) * 900 : 0),
      batches: (i) => wave(i, 90, 500, 700), regret_ns: (i) => wave(i, 45, 0, 4e6),
      by_reason: { drained: (i) => wave(i, 90, 400, 500), anticipate: (i) => wave(i, 60, 60, 150), probe: (i) => (i % 40 < 4 ? 12 : 0) },
    }) : undefined,
  };
}

export function figures(path, query, now, wall) {
  const seconds = Number(query.get("history") ?? 0);
  const frame = { now: new Date(wall).toISOString(), uptime_ms: Math.round(now * 1000), sample_ms: 1000 };
  switch (path) {
    case "/boundaries":
      return { ...frame, boundaries: [
        boundary("log_syncs", "commands", true, now, seconds, 6), boundary("entries", "commands", true, now, seconds, 0.1),
        boundary("socket_writes", "messages", false, now, seconds, 0.2), boundary("flow_acks", "messages", false, now, seconds, 0.05)] };
    case "/overview":
      return { ...frame, server_name: "n1", server_id: "ID", version: "0.1.1", shows_messages: true, cores: 2, behind: null, max_connections: 65536, connections: 1204,
        subscriptions: 5310, memory_bytes: 131e6, used_bytes: 9.1e9, storage_bytes: 8.8e9, waiting_bytes: 18_000, ack_ns: { p50: 1.9e6, p99: 6.3e6, count: 61_204, span_ms: 10_000 },
        turn_cpu_ns: { p50: 31_000, p99: 420_000 }, disk: { free_bytes: 31e9, total_bytes: 252e9, full_in_s: 10_900 },
        alarms: [{ level: "critical", text: "n3 is not connected" }, { level: "warning", text: "disk full in 3 h at this rate" }, { level: "warning", text: "n2 lags 14 s" }],
        streams: { streams: 12, consumers: 31, messages: 90_210_333, damaged_bytes: 0 },
        cluster: { name: "east", leader: "n1", forming: false, tls: true, members: [
          { name: "n1", this: true, leader: true, connected: true, current: null, lag: null, heard_ns: null },
          { name: "n2", this: false, leader: false, connected: true, current: false, lag: 91_000, heard_ns: 14e9 },
          { name: "n3", this: false, leader: false, connected: false, current: false, lag: 1, heard_ns: 90e9 }] },
        history: seconds ? history(now, seconds, {
          in_msgs: (i) => wave(i, 90, 3000, 9000), in_bytes: (i) => wave(i, 90, 3000, 9000) * 900, out_msgs: (i) => wave(i, 90, 6000, 20_000), out_bytes: (i) => wave(i, 90, 6000, 20_000) * 900,
          syncs: (i) => wave(i, 90, 500, 700), sync_ns: (i) => wave(i, 70, 500, 700) * 1.2e6, commands: (i) => wave(i, 90, 3000, 9000),
          ack_p50_ns: (i) => wave(i, 70, 1.5e6, 2.2e6), ack_p99_ns: (i) => wave(i, 50, 4e6, 9e6),
          leads: (i) => (i % 240 < 120 ? 2 : 1), moving: (i) => (i % 240 > 200 ? 1 : 0), elections: (i) => (i % 120 === 0 ? 1 : 0), lag: { n2: (i) => wave(i, 100, 0, 91_000), n3: () => 1 },
          free_bytes: (i) => 34e9 - i * 4e6, used_bytes: (i) => 6e9 + i * 4e6, connections: () => 1204,
          threads: { loop: (i) => wave(i, 90, 3e8, 7e8), log: (i) => wave(i, 80, 1e8, 2e8), monitor: () => 4e6, signals: () => 0, pool: (i) => (i % 30 === 0 ? 2e7 : 0) },
        }) : undefined };
    case "/jsz": {
      const names = Array.from({ length: 120 }, (_, i) => `ORDERS_${String(i).padStart(3, "0")}`);
      names[3] = "<img src=x onerror=alert(1)>\u202egnp";
      const found = names.filter((n) => n.includes(query.get("search") ?? ""));
      const page = found.slice(Number(query.get("offset") ?? 0)).slice(0, Number(query.get("limit") ?? 1024));
      return { streams: names.length, consumers: 31, found: found.length, account_details: [{ stream_detail: page.map((name, i) => ({
        name, config: { subjects: [`orders.${i}.>`], num_replicas: 3 }, cluster: { leader: "n1" },
        state: { messages: 7_000_000 - i, bytes: 6.1e9, first_seq: 1, last_seq: 7_000_000, consumer_count: 2 },
      })) }] };
    }
    case "/consumerz": {
      const all = Array.from({ length: 240 }, (_, i) => ({ name: i % 2 ? "audit" : "billing", stream_name: `ORDERS_${String(i >> 1).padStart(3, "0")}`,
        config: { durable_name: "billing", filter_subject: "orders.*.new" }, num_pending: i, num_ack_pending: 7, num_redelivered: 1, ack_floor: { stream_seq: 6_999_000 } }));
      const stream = query.get("stream");
      const found = all.filter((c) => (stream ? c.stream_name === stream : true) && `${c.name} ${c.stream_name}`.includes(query.get("search") ?? ""));
      if (query.get("sort") === "pending") found.reverse();
      const offset = Number(query.get("offset") ?? 0);
      return { total: found.length, offset, consumers: found.slice(offset, offset + Number(query.get("limit") ?? 1024)) };
    }
    case "/connz": {
      const all = Array.from({ length: 1204 }, (_, i) => ({ cid: i + 4, name: `worker-${i}`, ip: "10.0.0.7", port: 40_000 + i, lang: "go", version: "1.48.0",
        in_msgs: i * 1000, out_msgs: i * 2000, pending_bytes: 0, subscriptions: 3, idle: "1s", uptime: "2h3m4s" }));
      const found = all.filter((c) => c.name.includes(query.get("search") ?? ""));
      const offset = Number(query.get("offset") ?? 0);
      return { total: found.length, offset, connections: found.slice(offset, offset + Number(query.get("limit") ?? 1024)) };
    }
    case "/messages": {
      const before = Number(query.get("before") ?? 101);
      const from = Number(query.get("seq") ?? Math.max(before - Number(query.get("limit") ?? 20), 1));
      const seqs = Array.from({ length: Number(query.get("limit") ?? 20) }, (_, i) => from + i).filter((n) => n <= 100);
      return { stream: query.get("stream"), first_seq: 1, last_seq: 100, looked: 100, complete: true, older: from > 1 ? from : null, newer: from + seqs.length <= 100 ? from + seqs.length : null,
        messages: seqs.map((seq) => ({ seq, time: "2026-11-27T08:00:00.123Z", subject: seq === 99 ? "<img src=x onerror=alert(1)>" : "orders.7.new", bytes: 90, body_bytes: 60,
          headers: seq % 3 === 0 ? { text: "NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n", cut: false } : null,
          body: seq === 100 ? { hex: "1b5b324a00ff68656c6c6f20776f726c6421", cut: false } : { text: `{"order":${seq},"note":"<script>alert(1)</script>"}`, cut: seq === 98 } })) };
    }
    case "/subsz":
      return { total: 2, subscriptions_list: [{ subject: "orders.>", sid: "1", msgs: 12, cid: 4 }, { subject: "orders.*", qgroup: "q", sid: "2", msgs: 1200, cid: 5 }] };
    case "/routez":
      return { routes: [{ remote_name: "n2", ip: "10.0.0.2", port: 6222, in_msgs: 12_000, out_msgs: 13_000, in_bytes: 9e6, out_bytes: 1e7, pending_size: 0, subscriptions: 31 }] };
    case "/raftz":
      return { SYS: { _meta_: { state: "LEADER", leader: "n1", size: 3, quorum_needed: 2 } } };
    default:
      return undefined;
  }
}

// Starts the server. `answer(path, query)` of the handle returns the figures, undefined for 404, or text.
export async function start(port = 0, uptimeS = 700) {
  const began = Date.now() - uptimeS * 1000;
  const handle = { answer: (path, query) => figures(path, query, (Date.now() - began) / 1000, Date.now()), requests: 0 };
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://mock");
    const file = FILES[url.pathname];
    if (file) {
      response.writeHead(200, { "content-type": file[1], "content-security-policy": POLICY, "x-content-type-options": "nosniff" });
      response.end(readFileSync(join(dist, file[0])));
      return;
    }
    handle.requests += 1;
    if (url.pathname === "/messages" && request.headers.authorization !== "Bearer a-token-of-the-mock") {
      response.writeHead(401, { "content-type": "text/plain" });
      response.end("wrong token");
      return;
    }
    const answer = handle.answer(url.pathname, url.searchParams);
    response.writeHead(answer === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(typeof answer === "string" ? answer : JSON.stringify(answer) ?? "no such path");
  });
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  handle.url = `http://127.0.0.1:${server.address().port}`;
  handle.stop = () => new Promise((done) => { server.close(done); server.closeAllConnections(); });
  return handle;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start(Number(process.argv[2] ?? 8322));
  console.log(`${url}/dashboard`);
}
