// Joins the parts of a history that the page has fetched into one of bounded length. Pure.

// The same bound as the server's, so a tab that stays open does not grow.
export const SAMPLES_MAX = 600;

// Adds the newer entries of `more` to `kept`, both objects of arrays of one length beside `uptime_ms`. Nested
// objects of arrays (`by_reason`, `threads`) may gain and lose names.
export function join(kept, more) {
  if (!more?.uptime_ms) return kept;
  if (!kept) return cut(more);
  const last = kept.uptime_ms.at(-1) ?? -1;
  const from = more.uptime_ms.findIndex((ms) => ms > last);
  if (from < 0) return kept;
  return cut(both(kept, more, kept.uptime_ms.length, more.uptime_ms.length, from));
}

function both(kept, more, keptLen, moreLen, from) {
  const out = {};
  for (const name of new Set([...Object.keys(kept), ...Object.keys(more)])) {
    const [a, b] = [kept[name], more[name]];
    if (Array.isArray(a) || Array.isArray(b)) {
      out[name] = (a ?? Array(keptLen).fill(0)).concat((b ?? Array(moreLen).fill(0)).slice(from));
    } else {
      out[name] = both(a ?? {}, b ?? {}, keptLen, moreLen, from);
    }
  }
  return out;
}

function cut(history) {
  const out = {};
  for (const [name, value] of Object.entries(history)) {
    out[name] = Array.isArray(value) ? value.slice(-SAMPLES_MAX) : cut(value);
  }
  return out;
}

// Divides counts by the seconds that each entry covers. `null` marks a gap.
export function rates(counts, spans) {
  return (counts ?? []).map((n, i) => (spans?.[i] > 0 ? (n * 1000) / spans[i] : null));
}

// Puts a null into each series before an entry that covers a gap, so that plots do not draw a line over it.
export function gaps(xs, series, spans, sampleMs) {
  const [outX, out] = [[], series.map(() => [])];
  xs.forEach((x, i) => {
    if (i > 0 && spans?.[i] > 3 * sampleMs) {
      outX.push(x - spans[i] / 2000);
      out.forEach((s) => s.push(null));
    }
    outX.push(x);
    series.forEach((s, k) => out[k].push(s[i] ?? null));
  });
  return [outX, ...out];
}
