// The route in the hash: `#/boundaries/log_syncs?at=MS&span=S`. Pure.
//
// `at` is the wall-clock time, in milliseconds, at which a zoomed view ends, and `span` its length in seconds.
// A view without `at` is live.

export const PAGES = ["overview", "boundaries", "streams", "messages", "connections", "cluster"];
export const SPAN = 300;
const SPANS = [5, 600];

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [page, ...rest] = path.split("/");
  const values = new URLSearchParams(query ?? "");
  const number = (name) => {
    const n = Number(values.get(name) ?? NaN);
    return Number.isFinite(n) && n > 0 ? n : undefined;
  };
  const span = Math.min(Math.max(number("span") ?? SPAN, SPANS[0]), SPANS[1]);
  return {
    page: PAGES.includes(page) ? page : "overview",
    part: decoded(rest.join("/")),
    at: number("at"),
    span,
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function write({ page, part, at, span }) {
  const values = new URLSearchParams();
  if (at !== undefined) values.set("at", String(Math.round(at)));
  if (span !== undefined && (span !== SPAN || at !== undefined)) values.set("span", String(Math.round(span)));
  const query = values.toString();
  return `#/${page}${part ? `/${encodeURIComponent(part)}` : ""}${query ? `?${query}` : ""}`;
}
