// Writes numbers, times and findings in words. Pure.

export const MISSING = "not given";

const known = (n) => typeof n === "number" && Number.isFinite(n);

// Writes a number with three digits and a suffix: 1234567 is 1.23 M.
export function short(n) {
  if (!known(n)) return MISSING;
  const size = Math.abs(n);
  if (size !== 0 && size < 0.01) return n.toExponential(1);
  for (const [unit, suffix] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (size >= unit * 0.9995) return digits(n / unit) + suffix;
  }
  return digits(n);
}

function digits(n) {
  const size = Math.abs(n);
  if (Number.isInteger(n) && size < 1000) return String(n);
  return n.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

// Writes a whole number with a mark between thousands.
export function whole(n) {
  return known(n) ? Math.round(n).toLocaleString("en-US") : MISSING;
}

// Writes a short number with its unit, or that it is missing.
export function amount(n, unit) {
  return known(n) ? `${short(n)} ${unit}` : MISSING;
}

export function bytes(n) {
  if (!known(n)) return MISSING;
  for (const [unit, suffix] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= unit) return `${digits(n / unit)} ${suffix}`;
  }
  return `${digits(n)} B`;
}

// Writes a duration in nanoseconds in the unit in which it has few digits.
export function duration(ns) {
  if (!known(ns)) return MISSING;
  if (ns >= 120e9) return span(ns / 1e9);
  for (const [unit, suffix] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= unit) return `${digits(ns / unit)} ${suffix}`;
  }
  return `${short(ns)} ns`;
}

// Writes seconds as a person says them, in one unit.
export function span(s) {
  if (!known(s)) return MISSING;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function percent(part) {
  return known(part) ? `${digits(100 * part)} %` : MISSING;
}

// Writes a size in the unit of a boundary.
export function size(n, unit) {
  if (!known(n)) return MISSING;
  if (n >= 1e15) return "no limit";
  return unit === "bytes" ? bytes(n) : `${short(n)} ${unit}`;
}

export function clock(ms) {
  const date = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// The reasons of cuts and limits in words, as docs/dashboard.md has them.
export const REASONS = {
  drained: "took all that waited",
  limit: "a fixed or historical rule",
  efficiency: "larger batches gain next to nothing",
  memory: "the hard bound on items or bytes",
  latency: "the objective on latency",
  convexity: "larger batches were measured to be worse",
  drain_chunk: "a backlog is cut into equal parts",
  probe: "another size, to learn its cost",
  anticipate: "waited for callers about to return",
  pace: "waited, because flushes have a price",
  age: "the oldest item waited as long as allowed",
  linger: "the linger ended",
  blocking: "the producer was about to block",
  asked: "a flush was asked for",
  closing: "the boundary closes",
  oversized: "one item above the limit on bytes",
  backlog: "the backlog grew, so the limit is larger",
  shared: "its share of the backlog, beside other batches",
};

// Says in words what waiting cost a boundary over the samples of `history`, and since its start.
export function regret(boundary, history) {
  const sum = (list) => (list ?? []).reduce((a, b) => a + (b ?? 0), 0);
  const { batches, waits, waits_vain: vain, regret_ns: ns, items } = boundary;
  if (![batches, waits, vain, ns].every(known)) return "This program does not say how long items waited.";
  if (batches === 0) return "No batch has been cut yet.";
  if (waits === 0) return `None of ${whole(batches)} batches was held back, so no item waited for company.`;
  const lately = sum(history?.regret_ns);
  const latelyItems = sum(history?.items);
  const recent = latelyItems > 0
    ? ` In the samples kept, items waited ${duration(lately)} in all, ${duration(lately / latelyItems)} an item.`
    : "";
  return `${whole(waits)} of ${whole(batches)} batches were held back, ${whole(vain)} of them in vain. `
    + `For that, items waited ${duration(ns)} in all, ${duration(ns / Math.max(items, 1))} an item. `
    + `A greedy controller would have had 0.${recent}`;
}

// Says in words what the fit means.
export function fit(model, unit) {
  if (!model) return "The controller has no fit yet: it has measured too few sizes, or its rule measures none.";
  const one = unit === "bytes" ? "byte" : unit.replace(/s$/, "");
  const knee = model.b_ns > model.b_err_ns ? ` Both parts are equal at ${size(model.a_ns / model.b_ns, unit)}.` : "";
  return `A batch costs a = ${duration(model.a_ns)} (± ${duration(model.a_err_ns)}) and `
    + `b = ${model.b_ns < 1e-3 ? "next to 0" : duration(model.b_ns)} (± ${duration(model.b_err_ns)}) for each ${one}; `
    + `single costs scatter by ${percent(model.noise)}.${knee}`;
}
