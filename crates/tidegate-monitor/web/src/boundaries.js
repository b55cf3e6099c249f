// The page with the decisions at each boundary.

import { el, say, table } from "./dom.js";
import { REASONS, amount, duration, fit, percent, regret, short, size, whole } from "./format.js";
import { gaps, rates } from "./history.js";
import { Plot } from "./plot.js";

const NAMES = {
  log_syncs: ["Log syncs", "One batch is the commands that one write and one sync make durable."],
  entries: ["Entries", "One batch is the commands of one turn of the event loop that go into one entry of the replicated log."],
  socket_writes: ["Socket writes", "One batch is the copies of messages that one round of writes hands to the sockets."],
  flow_acks: ["Flow acknowledgements", "One batch is the messages of a fast-ingest publisher that one flow acknowledgement covers."],
};
const COLORS = Object.keys(REASONS);
const NO_LIMIT = 1e15;

export function boundaries(view) {
  const tabs = el("nav", { class: "parts", "aria-label": "Boundaries" });
  const at = el("div");
  const node = el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Boundaries"),
    el("p", { class: "help" }, "A boundary is a place where the server cuts batches. The controller measures the cost of batches by their size and chooses the limit from it."),
    tabs, at);
  let shown;
  let names = "";

  const update = (source) => {
    if (!source.boundaries) return;
    const all = source.boundaries.boundaries;
    const wanted = view.route().part;
    const one = all.find((b) => b.name === wanted) ?? (wanted ? undefined : all[0]);
    const key = JSON.stringify([all.map((b) => b.name), one?.name, wanted]);
    if (key !== names) {
      names = key;
      tabs.replaceChildren(...all.map((b) => el("a", {
        href: view.link({ part: b.name }), "aria-current": b.name === one?.name ? "page" : undefined,
      }, title(b.name))));
      shown?.destroy();
      shown = one ? boundary(view, one.name) : undefined;
      at.replaceChildren(shown?.node ?? el("p", null, wanted
        ? `This server has no boundary named ${wanted} now. It has: ${all.map((b) => b.name).join(", ") || "none"}.`
        : "This program has no boundary yet."));
    }
    if (one) shown.update(one, source);
  };
  return { node, update, destroy: () => shown?.destroy(), needs: "boundaries" };
}

const title = (name) => NAMES[name]?.[0] ?? (name.startsWith("entries_group_") ? `Entries of group ${name.slice(14)}` : name);

function boundary(view, name) {
  const facts = el("dl", { class: "facts" });
  const state = el("p", { class: "flags" });
  const model = el("p");
  const waited = el("p");
  const other = el("div");
  const reasons = el("div");
  let latest;
  const unit = () => latest?.size_unit ?? latest?.unit ?? "items";
  const sized = (n) => size(n, unit());
  const cost = new Plot({
    title: "Cost of a batch by its size", x: { label: "size of the batch", format: sized, binary: () => unit() === "bytes" }, format: duration, log: true,
    series: [{ label: "fit a + b·n", color: 0 }, { label: "sizes tried", color: 1, points: true }],
    help: "Each point is the mean cost of batches of one size; the line is the fit. Where the line is flat, a larger batch is nearly free; where it rises evenly, a larger batch gains nothing more. Both axes are logarithmic.",
    marks: () => (latest && latest.limit < NO_LIMIT ? [{ x: latest.limit, label: `limit ${sized(latest.limit)}` }] : []),
  });
  const limit = new Plot({
    title: "Limit and batch size", x: "time", format: sized, log: true, binary: () => unit() === "bytes", zoom: view.zoom,
    series: [{ label: "limit", color: 3, step: true, dash: true }, { label: "mean batch", color: 0 }],
    help: "A batch takes all that waits, at most the limit. A mean far below the limit says that the limit does not bind.",
  });
  const cuts = new Plot({
    title: "Batches a second by the reason of their cut", x: "time", format: (n) => `${short(n)}/s`, stacked: true, zoom: view.zoom, series: [],
  });
  const flight = new Plot({
    title: "Batches in flight", x: "time", format: (n) => short(n), zoom: view.zoom,
    series: [{ label: "allowed", color: 3, step: true, dash: true }, { label: "running at the sample", color: 0, step: true }],
  });
  const price = new Plot({
    title: "Time that items waited for company", x: "time", format: (n) => `${duration(n)} a second`, zoom: view.zoom,
    series: [{ label: "summed over items", color: 3, fill: true }],
    help: "Only waits that the controller chose: the batch could have started.",
  });
  const plots = [cost, limit, cuts, flight, price];
  const [heading, about] = [title(name), NAMES[name]?.[1]];
  const node = el("article", { "aria-label": heading }, el("h3", null, heading), about && el("p", { class: "help" }, about),
    state, facts, model, el("div", { class: "plots" }, cost.node, limit.node, cuts.node, flight.node),
    el("h4", null, "Other limits"), other, el("h4", null, "Regret"), waited, el("div", { class: "plots" }, price.node),
    el("h4", null, "Reasons"), reasons);

  const update = (b, source) => {
    latest = b;
    const h = b.history ?? {};
    const spans = h.span_ms ?? h.uptime_ms?.map(() => source.boundaries.sample_ms) ?? [];
    const flags = [
      b.infeasible && "The objective cannot be met at this rate.",
      b.frozen && "The controller is frozen: it learns nothing.",
    ].filter(Boolean).join(" ");
    say(state, flags);
    state.hidden = !flags;
    const items = b.unit ?? "items";
    const facts2 = [
      ["limit now", b.limit === undefined ? "not given" : size(b.limit, unit())],
      ["because", b.reason ? `${b.reason}: ${REASONS[b.reason] ?? "see the documentation"}` : "no reason given"],
      ["rate", amount(b.rate_per_s, `${items}/s`)],
      ["batches", whole(b.batches)],
      ["mean batch", b.batches > 0 ? amount(b.items / b.batches, items) : "none yet"],
      ["largest", amount(b.items_max, items)],
      ["costs changed", amount(b.resets, b.resets === 1 ? "time" : "times")],
      ["outliers", whole(b.clipped)],
    ];
    say2(facts, facts2);
    say(model, fit(b.model, unit()));
    say(waited, regret(b, h));
    cost.show(costData(b), undefined);
    const bounds = view.bounds();
    const xs = (h.uptime_ms ?? []).map((ms) => source.wall(ms) / 1000);
    const sampleMs = source.boundaries.sample_ms ?? 1000;
    const show = (plot, series, labels) => plot.show(gaps(xs, series, spans, sampleMs), bounds, labels);
    const sizes = unit() === "bytes" ? h.bytes : h.items;
    const mean = (h.batches ?? []).map((n, i) => (n > 0 && sizes?.[i] > 0 ? sizes[i] / n : null));
    show(limit, [(h.limit ?? []).map((n) => (n > 0 && n < NO_LIMIT ? n : null)), mean]);
    const seen = Object.entries(h.by_reason ?? {}).filter(([, list]) => list.some((n) => n > 0));
    seen.sort(([a], [b2]) => COLORS.indexOf(a) - COLORS.indexOf(b2));
    show(cuts, seen.map(([, list]) => rates(list, spans)),
      seen.map(([reason]) => ({ label: reason, color: Math.max(COLORS.indexOf(reason), 0) % 9 })));
    show(flight, [h.in_flight ?? [], h.running ?? []]);
    show(price, [rates(h.regret_ns, spans)]);
    show3(other, outcomes(b));
    const total = Object.values(b.by_reason ?? {}).reduce((a, n) => a + n, 0);
    const rows = Object.entries(b.by_reason ?? {}).sort(([, a], [, c]) => c - a)
      .map(([reason, n]) => [reason, REASONS[reason] ?? "", whole(n), percent(n / total)]);
    show3(reasons, [`Batches since the start, by reason`,
      [{ title: "reason" }, { title: "the batch ends here because", wide: true }, { title: "batches", number: true }, { title: "share", number: true }], rows]);
  };
  return { node, update, destroy: () => plots.forEach((p) => p.destroy()) };
}

// Fills a list of facts, and touches only those that changed.
function say2(list, facts) {
  if (list.children.length !== facts.length) {
    list.replaceChildren(...facts.map(([name]) => el("div", null, el("dt", null, name), el("dd"))));
  }
  facts.forEach(([, text], i) => say(list.children[i].lastChild, text));
}

// Shows a table again if its contents changed, and not while the user is in it.
function show3(at, [caption, columns, rows]) {
  const key = JSON.stringify(rows);
  if (at.shown === key || at.contains(document.activeElement)) return;
  at.shown = key;
  at.replaceChildren(table(caption, columns, rows, "not known: without a fit and a rate there is no comparison"));
}

function costData(b) {
  const points = new Map((b.sizes ?? []).map((s) => [s.items, s.cost_ns]));
  const sizes = [...points.keys()];
  if (sizes.length === 0) return [[], [], []];
  const last = b.limit < NO_LIMIT ? Math.max(b.limit, ...sizes) : Math.max(...sizes);
  const [low, high] = [Math.max(Math.min(...sizes) * 0.8, 0.5), last * 1.25];
  const line = Array.from({ length: 48 }, (_, i) => low * (high / low) ** (i / 47));
  const xs = [...new Set([...sizes, ...line])].sort((a, c) => a - c);
  const { model } = b;
  return [xs, xs.map((x) => (model ? model.a_ns + model.b_ns * x : null)), xs.map((x) => points.get(x) ?? null)];
}

function outcomes(b) {
  const c = b.counterfactual;
  const items = b.unit ?? "items";
  const columns = [{ title: "limit", wide: true }, { title: "batch", number: true }, { title: "takes", number: true },
    { title: "batches/s", number: true }, { title: "busy", number: true }, { title: "at most", number: true }];
  const endless = (v, text) => (v === null || v === undefined ? "without end" : text);
  const row = (label, o) => [label,
    endless(o.batch_items, amount(o.batch_items, items)),
    endless(o.batch_ns, duration(o.batch_ns)),
    endless(o.batches_per_s, short(o.batches_per_s)),
    endless(o.batches_per_s, percent((o.batches_per_s * o.batch_ns) / 1e9 / Math.max(b.in_flight, 1))),
    o.items_per_s_max === null ? "no bound" : amount(o.items_per_s_max, `${items}/s`)];
  const labels = [["now", "the limit now"], ["greedy", "no limit (greedy)"], ["half", "half of it"], ["twice", "twice of it"]];
  const rows = c ? labels.filter(([key]) => c[key]).map(([key, label]) => row(label, c[key])) : [];
  return ["By the fit, at the rate now, if each batch starts as soon as the one before it ends", columns, rows];
}
