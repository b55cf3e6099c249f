// The frame of the page: the route, the bar with its buttons, the notes and the alarms.

import "uplot/dist/uPlot.min.css";
import { boundaries } from "./boundaries.js";
import { cluster } from "./cluster.js";
import { el, say } from "./dom.js";
import { clock } from "./format.js";
import { connections, streams } from "./lists.js";
import { messages } from "./messages.js";
import { PAGES, SPAN, parse, write } from "./moment.js";
import { overview } from "./overview.js";
import { Source } from "./source.js";

const PAGE = { overview, boundaries, streams, messages, connections, cluster };
const TITLES = { overview: "Overview", boundaries: "Boundaries", streams: "Streams", messages: "Messages", connections: "Connections", cluster: "Cluster" };

const content = document.getElementById("content");
const notes = document.getElementById("notes");
let route = parse(location.hash);
let page;

const source = new Source(() => guarded(update));

// The view that the pages share: the shown time, and links that keep it.
const view = {
  route: () => route,
  link: (changes) => write({ ...route, ...changes }),
  // The bounds of the time axes, in seconds since 1970.
  bounds: () => {
    const end = route.at ?? source.wall(source.boundaries?.uptime_ms ?? 0);
    return [end / 1000 - route.span, end / 1000];
  },
  // Zooms to bounds in seconds, or a step.
  zoom: (to) => {
    let [from, until] = view.bounds();
    const span = until - from;
    if (Array.isArray(to)) [from, until] = to;
    else if (to === "in") [from, until] = [from + span / 4, until - span / 4];
    else if (to === "out") [from, until] = [from - span / 2, until + span / 2];
    else if (to === "left") [from, until] = [from - span / 4, until - span / 4];
    else [from, until] = [from + span / 4, until + span / 4];
    const shown = Math.min(Math.max(until - from, 5), 600);
    go({ at: Math.min(until * 1000, source.wall(source.boundaries?.uptime_ms ?? Infinity)), span: shown });
  },
};

function go(changes) {
  route = { ...route, ...changes };
  history.replaceState(null, "", write(route));
  if (route.at !== undefined && !source.paused) source.pause(true);
  guarded(update);
}

const button = (text, click, attributes) => el("button", { type: "button", onclick: () => guarded(click), ...attributes }, text);
const pause = button("Pause", () => {
  if (source.paused) {
    route = { ...route, at: undefined };
    history.replaceState(null, "", write(route));
    source.pause(false);
  } else {
    go({ at: source.wall(source.boundaries?.uptime_ms ?? 0) });
  }
});
const spans = el("select", { onchange: () => guarded(() => go({ span: Number(spans.value) })) },
  [[60, "1 minute"], [300, "5 minutes"], [600, "10 minutes"]].map(([s, text]) => el("option", { value: s }, text)));
const menu = el("nav", { class: "pages", "aria-label": "Pages" });
const name = el("p", { class: "server" });
const tools = el("div", { class: "tools", role: "group", "aria-label": "Time and export" },
  el("label", { "data-time": true }, "Show ", spans), pause,
  ...[["Earlier", "left"], ["Later", "right"], ["Zoom in", "in"], ["Zoom out", "out"]].map(([text, step]) =>
    button(text, () => view.zoom(step), { "data-time": true })),
  button("Copy link", copyLink), button("Export JSON", exportJson));
// The clock stands beside the status, because a screen reader would announce each second of it.
const shown = el("span", { role: "status" });
const time = el("span", { "aria-hidden": "true" });
const trouble = el("p", { class: "trouble", role: "alert" });
const events = el("ul", { class: "events" });
const alarms = el("ul", { class: "alarms", "aria-label": "Alarms" });
const failed = el("p", { class: "trouble", role: "alert" });

function copyLink() {
  // A link names a moment, so the view stops at the present one.
  if (route.at === undefined) go({ at: source.wall(source.boundaries?.uptime_ms ?? 0) });
  const done = navigator.clipboard?.writeText(location.href);
  const told = (text) => say(shown, text);
  if (!done) told("The link is the address of this page now: copy it from the address bar.");
  else done.then(() => told("The link to this moment is in the clipboard."), () => told("The link is the address of this page now: copy it from the address bar."));
}

function exportJson() {
  const blob = new Blob([JSON.stringify(source.export(), null, 1)], { type: "application/json" });
  const url = URL.createObjectURL(blob);
  const file = `tidegate-${(source.overview?.server_name ?? "server").replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60)}.json`;
  const link = el("a", { href: url, download: file });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Runs a step of the page, and shows an error of the page itself in words.
function guarded(step) {
  try {
    step();
    failed.hidden = true;
  } catch (e) {
    failed.hidden = false;
    say(failed, `The page met an error and may show old figures: ${e?.message ?? e}. The figures as JSON are at /boundaries, /overview and /varz.`);
    console.error(e);
  }
}

function update() {
  const o = source.overview;
  // A server without a name has its id, of 56 letters, as the name.
  const full = o?.server_name ?? "server";
  const called = full.length > 24 ? `${full.slice(0, 10)}…` : full;
  say(name, o ? `${called}${o.version ? `, version ${o.version}` : ""}` : "");
  name.title = full;
  document.title = o?.server_name ? `${called} - Tidegate` : "Tidegate";
  document.body.classList.toggle("stale", Boolean(source.trouble));
  say(trouble, source.trouble);
  trouble.hidden = !source.trouble;
  if (events.children.length !== source.events.length || events.lastChild?.firstChild?.textContent !== source.events.at(-1)) {
    events.replaceChildren(...source.events.map((text, i) => el("li", null, el("span", null, text), " ",
      button("Dismiss", () => { source.events = source.events.filter((_, k) => k !== i); update(); }, { "aria-label": `Dismiss: ${text}` }))));
  }
  const list = o?.alarms ?? [];
  const key = JSON.stringify(list);
  if (alarms.key !== key) {
    alarms.key = key;
    alarms.replaceChildren(...list.map((a) => el("li", { class: a.level === "critical" ? "critical" : "warning" },
      el("strong", null, a.level === "critical" ? "Critical: " : "Warning: "), a.text)));
  }
  say(pause, source.paused ? "Go on live" : "Pause");
  const first = [source.boundaries?.boundaries?.[0]?.history?.uptime_ms?.[0], o?.history?.uptime_ms?.[0]].find((t) => t !== undefined);
  const oldest = first === undefined ? undefined : source.wall(first);
  const until = route.at;
  if (until !== undefined) say(time, "");
  if (until === undefined) {
    say(shown, source.boundaries ? "Live" : source.trouble ? "" : "The page asks the server for its figures.");
    say(time, source.boundaries ? `, ${clock(source.wall(source.boundaries.uptime_ms))}` : "");
  } else if (source.boundaries && (oldest === undefined || until < oldest)) {
    say(shown, `Nothing of ${new Date(until).toLocaleString()} is kept any more. ${oldest === undefined ? "There are no samples yet." : `The oldest sample is of ${new Date(oldest).toLocaleString()}.`}`);
  } else {
    say(shown, `Stopped: ${clock(until - route.span * 1000)} to ${clock(until)}`);
  }
  if (![...spans.options].some((s) => Number(s.value) === route.span)) {
    spans.querySelector("[data-own]")?.remove();
    spans.append(el("option", { value: route.span, "data-own": true }, `${Math.round(route.span)} seconds`));
  }
  spans.value = String(route.span);
  const isTimed = ["overview", "boundaries", "cluster"].includes(route.page);
  for (const tool of tools.querySelectorAll("[data-time]")) tool.hidden = !isTimed;
  for (const link of menu.children) link.href = write({ ...route, page: link.dataset.page, part: "" });
  page.update(source);
}

function show() {
  page?.destroy?.();
  page = PAGE[route.page](view);
  content.replaceChildren(page.node);
  menu.replaceChildren(...PAGES.map((p) => el("a", { href: "#", "data-page": p, "aria-current": p === route.page ? "page" : undefined }, TITLES[p])));
}

addEventListener("hashchange", () => guarded(() => {
  const before = route.page;
  route = parse(location.hash);
  if (route.page !== before) {
    show();
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  if ((route.at !== undefined) !== source.paused) source.pause(route.at !== undefined);
  update();
}));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !source.paused) source.tick();
});
addEventListener("error", (e) => guarded(() => { throw e.error ?? new Error(e.message); }));
addEventListener("unhandledrejection", (e) => guarded(() => { throw e.reason; }));

document.getElementById("head").append(name, menu, tools, el("p", { class: "shown" }, shown, time));
notes.append(trouble, failed, events, alarms);
trouble.hidden = failed.hidden = true;
document.getElementById("foot").append(
  el("p", null, "The page only shows; it changes nothing, and reads messages only with the operator's token. What each figure means: docs/dashboard.md. "
    + `Times are those of this browser's zone. It shows ${SPAN / 60} minutes at first and keeps ten.`));
guarded(show);
// A link to a moment first loads the history once, and then stops.
source.poll().then(() => { source.trouble = ""; }, () => {}).finally(() => {
  if (route.at !== undefined) source.paused = true;
  guarded(update);
  if (!source.paused) setTimeout(() => source.tick(), 1000);
});
