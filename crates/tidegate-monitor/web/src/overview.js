// The page with the figures of the whole server.

import { el, say } from "./dom.js";
import { MISSING, bytes, duration, percent, short, whole } from "./format.js";
import { gaps, rates } from "./history.js";
import { Plot } from "./plot.js";

export function overview(view) {
  const tiles = new Map();
  const grid = el("dl", { class: "tiles" });
  const tile = (title, text, note) => {
    if (!tiles.has(title)) {
      const [value, small] = [el("dd", { class: "value" }), el("dd", { class: "note" })];
      grid.append(el("div", { class: "tile" }, el("dt", null, title), value, small));
      tiles.set(title, [value, small]);
    }
    const [value, small] = tiles.get(title);
    say(value, text);
    say(small, note ?? "");
  };
  const absent = el("p", { hidden: true }, "This program gives no figures of a server. Its boundaries stand on their own page.");
  const rate = (n) => (n === undefined ? MISSING : `${short(n)}/s`);
  const byteRate = (n) => (n === undefined ? "" : `${bytes(n)}/s`);
  const plots = {
    messages: new Plot({
      title: "Messages a second", x: "time", format: rate, zoom: view.zoom,
      series: [{ label: "in", color: 0 }, { label: "out", color: 2 }],
      help: "Messages that clients publish, and copies that they receive.",
    }),
    bytes: new Plot({
      title: "Bytes a second", x: "time", binary: () => true, format: (n) => `${bytes(n)}/s`, zoom: view.zoom,
      series: [{ label: "in", color: 0 }, { label: "out", color: 2 }],
    }),
    syncs: new Plot({
      title: "Syncs of the log a second", x: "time", format: rate, zoom: view.zoom,
      series: [{ label: "syncs", color: 0 }, { label: "commands", color: 1 }],
      help: "One sync makes all commands durable that it covers; their ratio is the size of a batch.",
    }),
    acks: new Plot({
      title: "Publish to PubAck", x: "time", format: (n) => duration(n), zoom: view.zoom,
      series: [{ label: "p50", color: 0 }, { label: "p99", color: 1 }],
      help: "From the read of a publish into a stream to the write of its PubAck, in the server, second by second.",
    }),
    sync: new Plot({
      title: "Mean time of a sync", x: "time", format: (n) => duration(n), zoom: view.zoom,
      series: [{ label: "write and sync", color: 3 }],
    }),
    threads: new Plot({
      title: "CPU of the threads", x: "time", format: percent, zoom: view.zoom, stacked: true, series: [],
      help: "In percent of one core, by the name of the thread. Threads of one name count together.",
    }),
    disk: new Plot({
      title: "Room on the disk", x: "time", binary: () => true, format: bytes, zoom: view.zoom,
      series: [{ label: "free", color: 2 }, { label: "the log and its checkpoints", color: 0 }],
    }),
  };
  const all = el("div", { class: "plots" }, Object.values(plots).map((p) => p.node));
  all.hidden = true;
  const node = el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Overview"),
    el("h3", { class: "hidden" }, "Figures now"), absent, grid,
    all);

  const update = (source) => {
    const o = source.overview;
    absent.hidden = Boolean(o) || !source.boundaries;
    grid.hidden = all.hidden = !o;
    if (!o) return;
    const h = o.history ?? {};
    const spans = h.span_ms ?? [];
    const newest = (name) => rates(h[name], spans).at(-1);
    const syncs = h.syncs?.at(-1);
    tile("In", rate(newest("in_msgs")), byteRate(newest("in_bytes")));
    tile("Out", rate(newest("out_msgs")), byteRate(newest("out_bytes")));
    tile("Syncs", rate(newest("syncs")), syncs > 0 ? `${duration(h.sync_ns?.at(-1) / syncs)} each` : "none in the last second");
    tile("Publish to PubAck", o.ack_ns ? duration(o.ack_ns.p50) : o.ack_ns === null ? "none" : MISSING,
      o.ack_ns ? `p99 ${duration(o.ack_ns.p99)}; ${short(o.ack_ns.count)} in ${duration(o.ack_ns.span_ms * 1e6)}`
        : o.ack_ns === null ? "no acknowledgement in the last 10 s" : "this server does not measure it");
    tile("Connections", whole(o.connections), [o.max_connections && `of at most ${whole(o.max_connections)}`, o.subscriptions !== undefined && `${whole(o.subscriptions)} subscriptions`].filter(Boolean).join("; "));
    tile("Streams", o.streams ? whole(o.streams.streams) : o.streams === null ? "none" : MISSING,
      o.streams ? `${short(o.streams.messages)} messages, ${whole(o.streams.consumers)} consumers` : o.streams === null ? "the server keeps no streams" : "");
    tile("Memory", bytes(o.memory_bytes), o.cores ? `${whole(o.cores)} cores` : "");
    tile("Disk", o.disk ? bytes(o.disk.free_bytes) : MISSING,
      o.disk ? `free of ${bytes(o.disk.total_bytes)}; log ${bytes(o.used_bytes)}` : "no streams, or the system does not say");
    tile("Loop turn", duration(o.turn_cpu_ns?.p99), o.turn_cpu_ns ? `CPU at p99; p50 ${duration(o.turn_cpu_ns.p50)}` : "");
    tile("Waiting", bytes(o.waiting_bytes), "for the log");
    const xs = (h.uptime_ms ?? []).map((ms) => source.wall(ms) / 1000);
    const bounds = view.bounds();
    const show = (plot, ...series) => plot.show(gaps(xs, series, spans, o.sample_ms ?? 1000), bounds);
    show(plots.messages, rates(h.in_msgs, spans), rates(h.out_msgs, spans));
    show(plots.bytes, rates(h.in_bytes, spans), rates(h.out_bytes, spans));
    show(plots.syncs, rates(h.syncs, spans), rates(h.commands, spans));
    show(plots.acks, h.ack_p50_ns ?? [], h.ack_p99_ns ?? []);
    show(plots.sync, (h.syncs ?? []).map((n, i) => (n > 0 ? h.sync_ns[i] / n : null)));
    show(plots.disk, h.free_bytes ?? [], h.used_bytes ?? []);
    const threads = Object.entries(h.threads ?? {}).map(([name, list]) =>
      [name, list.map((ns, i) => (spans[i] > 0 ? ns / (spans[i] * 1e6) : null))]);
    const busy = threads.map(([name, list]) => [name, list, Math.max(0, ...list.map((v) => v ?? 0))]);
    busy.sort((a, b) => b[2] - a[2] || a[0].localeCompare(b[0]));
    const few = busy.slice(0, 8).sort((a, b) => a[0].localeCompare(b[0]));
    plots.threads.show(gaps(xs, few.map(([, list]) => list), spans, o.sample_ms ?? 1000), bounds,
      few.map(([name], i) => ({ label: name, color: i })));
  };
  return { node, update, destroy: () => Object.values(plots).forEach((p) => p.destroy()), needs: "overview" };
}
