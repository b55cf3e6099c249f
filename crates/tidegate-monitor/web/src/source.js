// Asks the server for figures, and keeps the newest for all pages.
//
// The page asks for the whole history once, and then only for the seconds since its last answer. It notices
// that the server restarted (its uptime falls) and that the server's clock was set (the wall clock moves
// against the uptime).

import { clock, span } from "./format.js";
import { join } from "./history.js";

const EVERY_MS = 1000;
const RETRY_MAX_MS = 5000;
const PATIENCE_MS = 8000;
const CLOCK_MOVED_MS = 2000;

// Asks for one path beside the page, with further headers if there are any. Throws an error with a text for
// people.
export async function ask(path, headers) {
  const request = () => fetch(path, { headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(PATIENCE_MS) });
  let response;
  try {
    // The server closes each connection after a minute. A request that meets this end gets a second try.
    response = await request().catch((e) => (e.name === "TimeoutError" ? Promise.reject(e) : request()));
  } catch (e) {
    throw new Error(e.name === "TimeoutError" ? "no answer within 8 s" : "no connection");
  }
  const text = await response.text();
  if (!response.ok) {
    const error = new Error(text.trim().slice(0, 300) || `status ${response.status}`);
    error.status = response.status;
    throw error;
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the answer is no JSON, or was cut off");
  }
}

export class Source {
  constructor(changed) {
    this.changed = changed;
    this.paused = false;
    this.overview = null;
    this.boundaries = null;
    // The finding about the connection, and (`events`) the findings that stay until the user reloads.
    this.trouble = "";
    this.events = [];
    this.offset = undefined;
    this.wait = EVERY_MS;
  }

  pause(paused) {
    this.paused = paused;
    clearTimeout(this.timer);
    if (!paused) this.tick();
    this.changed();
  }

  // The wall-clock time of a moment of the server's uptime, in milliseconds.
  wall(uptimeMs) {
    return uptimeMs + (this.offset ?? 0);
  }

  async tick() {
    clearTimeout(this.timer);
    if (this.paused) return;
    if (!document.hidden) {
      try {
        await this.poll();
        this.trouble = "";
        this.wait = EVERY_MS;
      } catch (e) {
        const since = this.troubleSince ?? Date.now();
        this.troubleSince = since;
        this.trouble = (e.status
          ? `The server refuses its figures since ${clock(since)}: ${e.message}. `
          : `The server does not answer since ${clock(since)} (${e.message}). It has ended, or the connection to it is cut. `)
          + `The page ${this.boundaries ? "shows the last figures and " : ""}asks again every few seconds.`;
        this.wait = Math.min(this.wait * 1.5, RETRY_MAX_MS);
      }
      if (!this.trouble) this.troubleSince = undefined;
      this.changed();
    }
    if (!this.paused) this.timer = setTimeout(() => this.tick(), this.wait);
  }

  async poll() {
    const last = this.boundaries?.uptime_ms;
    // Ten seconds more than the page lacks: a sample may come late.
    const lacks = last === undefined ? 600 : Math.ceil((performance.now() - this.asked) / 1000) + 10;
    const query = `?history=${Math.min(Math.max(lacks, 1), 600)}`;
    const asked = performance.now();
    const [boundaries, overview] = await Promise.all([
      ask(`boundaries${query}`),
      ask(`overview${query}`).catch((e) => {
        // A program that embeds the engine may have boundaries only.
        if (e.status === 404) return null;
        throw e;
      }),
    ]);
    this.asked = asked;
    this.take(boundaries, overview);
  }

  take(boundaries, overview) {
    if (!Array.isArray(boundaries?.boundaries)) throw new Error("the answer of /boundaries lacks its list");
    const before = this.boundaries;
    const restarted = before && boundaries.uptime_ms < before.uptime_ms;
    const now = Date.parse(boundaries.now);
    const offset = Number.isFinite(now) && Number.isFinite(boundaries.uptime_ms) ? now - boundaries.uptime_ms : undefined;
    if (restarted) {
      this.event(`The server started again ${span(boundaries.uptime_ms / 1000)} before ${clock(now)}. Its figures began anew; the plots show those since then.`);
    } else if (offset !== undefined && this.offset !== undefined && Math.abs(offset - this.offset) > CLOCK_MOVED_MS) {
      const moved = offset - this.offset;
      this.event(`The server's clock was set ${moved < 0 ? "back" : "forward"} by ${span(Math.abs(moved) / 1000)} at ${clock(now)}. The plots go by its uptime, so their order is right; their times are by the new clock.`);
    }
    if (offset === undefined) this.event("The server gives no time of its own; the plots count from its start.");
    this.offset = offset ?? this.offset;
    const old = new Map(restarted || !before ? [] : before.boundaries.map((b) => [b.name, b]));
    for (const b of boundaries.boundaries) {
      const known = old.get(b.name);
      b.history = join(known && known.batches <= b.batches ? known.history : undefined, b.history);
    }
    this.boundaries = boundaries;
    if (overview) {
      overview.history = join(restarted ? undefined : this.overview?.history, overview.history);
    }
    this.overview = overview;
  }

  event(text) {
    if (this.events.at(-1) === text) return;
    this.events = [...this.events.slice(-4), text];
  }

  // Everything that the page knows, for the export.
  export() {
    return {
      exported: new Date().toISOString(),
      from: location.origin,
      boundaries: this.boundaries,
      overview: this.overview,
      events: this.events,
    };
  }
}
