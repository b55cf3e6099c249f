// The page with the members of the cluster, the routes between them, and what happened to its leaders.

import { el, say, table } from "./dom.js";
import { bytes, clock, duration, short, whole } from "./format.js";
import { events } from "./happened.js";
import { gaps } from "./history.js";
import { Plot } from "./plot.js";
import { ask } from "./source.js";

const EVERY_MS = 5000;
const EVENTS_MAX = 50;

export function cluster(view) {
  const [members, routes, groups] = [el("div"), el("div"), el("div")];
  const trouble = el("p", { role: "status" });
  const plots = {
    lag: new Plot({
      title: "Entries that the other nodes lack", x: "time", format: whole, zoom: view.zoom, series: [],
      help: "Only the leader of the group of all nodes knows how far the others are: look at its page.",
    }),
    groups: new Plot({
      title: "Groups that this node leads, moves and elections", x: "time", format: whole, zoom: view.zoom,
      series: [{ label: "groups led", color: 0, step: true }, { label: "streams that move", color: 2, step: true }, { label: "elections", color: 3, points: true }],
      help: "A group keeps some of the streams. An election gives it a new leader; a stream moves to another group if an operator or the directory says so.",
    }),
  };
  const drawn = el("div", { class: "plots" }, Object.values(plots).map((p) => p.node));
  const happened = el("div");
  let loaded = -Infinity;
  const fill = (at, caption, columns, rows, empty) => {
    const key = JSON.stringify(rows);
    if (at.shown === key || at.contains(document.activeElement)) return;
    at.shown = key;
    at.replaceChildren(table(caption, columns, rows, empty));
  };
  const load = async () => {
    try {
      const [r, g] = await Promise.all([ask("routez"), ask("raftz")]);
      say(trouble, "");
      fill(routes, "Routes: the connections to the other nodes", [{ title: "node", wide: true }, { title: "address", wide: true }, { title: "messages in", number: true },
        { title: "messages out", number: true }, { title: "bytes in", number: true }, { title: "bytes out", number: true }, { title: "waiting", number: true }, { title: "subjects", number: true }],
      (r.routes ?? []).map((p) => [p.remote_name, `${p.ip}:${p.port}`, short(p.in_msgs), short(p.out_msgs), bytes(p.in_bytes), bytes(p.out_bytes), bytes(p.pending_size), whole(p.subscriptions)]),
      "no route");
      const all = Object.values(g).flatMap((account) => Object.entries(account));
      fill(groups, "The group that keeps the directory of streams", [{ title: "group" }, { title: "this node" }, { title: "leader" }, { title: "members", number: true }, { title: "quorum", number: true }],
        all.map(([name, one]) => [name, String(one.state ?? "").toLowerCase(), one.leader || "none", whole(one.size), whole(one.quorum_needed)]), "no group: a single server");
    } catch (e) {
      say(trouble, `The routes could not be read: ${e.message}.`);
    }
  };
  const update = (source) => {
    const c = source.overview?.cluster;
    const rows = (c?.members ?? []).map((m) => [m.this ? `${m.name} (this node)` : m.name, m.leader ? "leader" : "follower",
      m.connected ? "connected" : "not connected",
      m.lag === null || m.lag === undefined ? (m.leader ? "" : "only the leader knows") : `${m.lag === 1 ? "1 entry" : `${whole(m.lag)} entries`}${m.current ? "" : ", not current"}`,
      m.heard_ns ? `${duration(m.heard_ns)} ago` : ""]);
    fill(members, c ? `Members of the cluster ${c.name}${c.forming ? " (it is forming)" : ""}` : "Members of the cluster",
      [{ title: "node", wide: true }, { title: "role" }, { title: "connection" }, { title: "lag" }, { title: "heard" }], rows, "none: this server runs alone");
    const h = source.overview?.history;
    drawn.hidden = happened.hidden = !c;
    if (c && h) {
      const spans = h.span_ms ?? [];
      const xs = (h.uptime_ms ?? []).map((ms) => source.wall(ms) / 1000);
      const each = source.overview.sample_ms ?? 1000;
      const names = Object.keys(h.lag ?? {}).sort().slice(0, 8);
      plots.lag.show(gaps(xs, names.map((name) => h.lag[name]), spans, each), view.bounds(), names.map((name, i) => ({ label: name, color: i })));
      plots.groups.show(gaps(xs, [h.leads ?? [], h.moving ?? [], (h.elections ?? []).map((n) => (n > 0 ? n : null))], spans, each), view.bounds());
      fill(happened, "What happened while the page or another one watched, the newest first", [{ title: "time" }, { title: "event", wide: true }],
        events(h).slice(0, EVENTS_MAX).map(([ms, text]) => [clock(source.wall(ms)), text]), "no election, no move, and no other leader in the last ten minutes");
    }
    const now = performance.now();
    if (!source.paused && !document.hidden && now - loaded >= EVERY_MS) {
      loaded = now;
      load();
    }
  };
  return {
    node: el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Cluster"), trouble, members, drawn, happened, routes, groups),
    update,
    destroy: () => Object.values(plots).forEach((p) => p.destroy()),
  };
}
