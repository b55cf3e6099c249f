// The pages with streams, consumers, connections and subscriptions. The server sorts, searches and pages.

import { el, say, table } from "./dom.js";
import { bytes, clock, short, whole } from "./format.js";
import { ask } from "./source.js";

const PAGE = 50;
const EVERY_MS = 5000;
// A list rests this many times as long as its answer took, so that long lists cost the server little.
const REST = 20;

// A list with a search, pages and its own requests: `columns` and `rows` make the table of an answer; `path`
// makes the request for the state {search, offset, sort, ...}.
class List {
  constructor({ label, searchLabel, choices, path, rows, columns, total, note }) {
    Object.assign(this, { path, rows, columns, total, note });
    this.state = { search: "", offset: 0 };
    this.found = el("p", { role: "status" });
    this.at = el("div");
    this.label = label;
    const search = el("input", {
      type: "search", maxlength: "200", autocomplete: "off", spellcheck: "false",
      oninput: () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.set({ search: search.value, offset: 0 }), 300); },
    });
    const selects = (choices ?? []).map(({ name, label: text, options }) => {
      this.state[name] = options[0][0];
      const select = el("select", { onchange: () => this.set({ [name]: select.value, offset: 0 }) },
        options.map(([value, shown]) => el("option", { value }, shown)));
      return el("label", null, text, " ", select);
    });
    this.back = el("button", { type: "button", onclick: () => this.set({ offset: Math.max(0, this.state.offset - PAGE) }) }, "Back");
    this.next = el("button", { type: "button", onclick: () => this.set({ offset: this.state.offset + PAGE }) }, "Next");
    this.node = el("section", { "aria-label": label },
      el("form", { class: "tools", role: "search", "aria-label": label, onsubmit: (e) => e.preventDefault() },
        el("label", null, searchLabel, " ", search), selects),
      this.found, this.at, el("p", { class: "pages" }, this.back, this.next));
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.load();
  }

  // Loads the page again. A later load makes an earlier one void.
  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const asked = performance.now();
    try {
      const answer = await ask(this.path(this.state));
      this.took = performance.now() - asked;
      if (turn === this.turn) this.show(answer);
    } catch (e) {
      if (turn === this.turn) say(this.found, `The list could not be read: ${e.message}.`);
    }
  }

  show(answer) {
    const rows = this.rows(answer, this);
    const { offset, search } = this.state;
    const total = this.total(answer, this.state);
    const span = rows.length > 0 ? `${whole(offset + 1)} to ${whole(offset + rows.length)}` : "none";
    const of = total === undefined ? (search ? " that match" : "") : ` of ${whole(total)}`;
    say(this.found, `${span}${of}${this.note ? `. ${this.note}` : ""}`);
    this.back.disabled = offset === 0;
    this.next.disabled = rows.length < PAGE || (total !== undefined && offset + rows.length >= total);
    this.answer = answer;
    this.at.replaceChildren(table(this.label, this.columns, rows, "none found"));
  }

  // Loads again from time to time, but not while the user is in the table.
  refresh(paused) {
    const now = performance.now();
    const rest = Math.max(EVERY_MS, REST * (this.took ?? 0));
    if (paused || document.hidden || now - (this.loaded ?? -Infinity) < rest || this.at.contains(document.activeElement)) return;
    this.loaded = now;
    this.load();
  }
}

const param = (values) => new URLSearchParams(Object.entries(values).filter(([, v]) => v !== "" && v !== undefined)).toString();

export function streams(view) {
  const list = new List({
    label: "Streams", searchLabel: "Name contains",
    choices: [{ name: "sort", label: "Sort by", options: [["name", "name"], ["messages", "messages"], ["bytes", "size"], ["consumers", "consumers"], ["last", "last message"]] }],
    path: ({ search, offset, sort }) => `jsz?${param({ streams: 1, limit: PAGE, offset, sort, search })}`,
    columns: [{ title: "stream", wide: true }, { title: "subjects", wide: true }, { title: "messages", number: true }, { title: "size", number: true },
      { title: "first", number: true }, { title: "last", number: true }, { title: "consumers", number: true }, { title: "leader" }, { title: "copies", number: true }],
    rows: (answer) => (answer.account_details?.[0]?.stream_detail ?? []).map((s) => [
      el("button", { type: "button", class: "link", title: "shows its consumers", onclick: () => only(s.name) }, s.name),
      (s.config?.subjects ?? []).join(", ") || (s.config?.mirror ? `mirror of ${s.config.mirror.name}` : ""),
      whole(s.state?.messages), bytes(s.state?.bytes), whole(s.state?.first_seq), whole(s.state?.last_seq),
      whole(s.state?.consumer_count), s.cluster?.leader ?? "", whole(s.config?.num_replicas)]),
    total: (answer) => answer.found,
  });
  const consumers = new List({
    label: "Consumers", searchLabel: "Consumer or stream contains",
    choices: [{ name: "sort", label: "Sort by", options: [["name", "stream and name"], ["pending", "not delivered"], ["ack_pending", "not acknowledged"], ["redelivered", "redelivered"]] }],
    path: ({ search, offset, sort, stream }) => `consumerz?${param({ limit: PAGE, offset, sort, search, stream })}`,
    columns: [{ title: "consumer", wide: true }, { title: "stream", wide: true }, { title: "life" }, { title: "kind" }, { title: "filter" }, { title: "not delivered", number: true },
      { title: "not acknowledged", number: true }, { title: "redelivered", number: true }, { title: "acknowledged up to", number: true }],
    rows: (answer) => (answer.consumers ?? []).map((c) => [c.name, c.stream_name, c.config?.durable_name ? "durable" : "ephemeral",
      c.config?.deliver_subject ? "push" : "pull", c.config?.filter_subject ?? (c.config?.filter_subjects ?? []).join(", "),
      whole(c.num_pending), whole(c.num_ack_pending), whole(c.num_redelivered), whole(c.ack_floor?.stream_seq)]),
    total: (answer) => answer.total,
  });
  const title = el("h3", { tabindex: "-1" }, "Consumers");
  const read = el("a", { hidden: true }, "Read its messages");
  const all = el("button", { type: "button", hidden: true, onclick: () => only(undefined) }, "Consumers of all streams");
  const only = (stream) => {
    say(title, stream === undefined ? "Consumers" : `Consumers of ${stream}`);
    all.hidden = read.hidden = stream === undefined;
    read.href = view.link({ page: "messages", part: stream ?? "" });
    consumers.set({ stream, offset: 0 });
    title.focus();
  };
  return {
    node: el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Streams and consumers"),
      el("h3", null, "Streams"), list.node, title, el("p", null, all, " ", read), consumers.node),
    update: (source) => { list.refresh(source.paused); consumers.refresh(source.paused); },
  };
}

export function connections() {
  const list = new List({
    label: "Connections", searchLabel: "Name, user or address contains",
    choices: [
      { name: "sort", label: "Sort by", options: [["cid", "number"], ["pending", "bytes that wait"], ["msgs_from", "messages in"], ["msgs_to", "messages out"],
        ["bytes_from", "bytes in"], ["bytes_to", "bytes out"], ["subs", "subscriptions"], ["last", "last active"], ["idle", "longest idle"], ["start", "oldest"]] },
      { name: "state", label: "State", options: [["open", "open"], ["closed", "ended last"]] },
    ],
    path: ({ search, offset, sort, state }) => `connz?${param({ limit: PAGE, offset, sort, state, search })}`,
    columns: [{ title: "number" }, { title: "name", wide: true }, { title: "user" }, { title: "address", wide: true }, { title: "client" }, { title: "in", number: true },
      { title: "out", number: true }, { title: "waiting", number: true }, { title: "subs", number: true }, { title: "idle" }, { title: "up" }, { title: "ended" }],
    rows: (answer) => (answer.connections ?? []).map((c) => [String(c.cid), c.name ?? "", c.authorized_user ?? "", `${c.ip}:${c.port}`,
      [c.lang, c.version].filter(Boolean).join(" "), short(c.in_msgs), short(c.out_msgs), bytes(c.pending_bytes), whole(c.subscriptions), c.idle ?? "", c.uptime ?? "",
      c.reason ? `${c.reason}, ${clock(Date.parse(c.stop))}` : ""]),
    total: (answer) => answer.total,
  });
  const subs = new List({
    label: "Subscriptions", searchLabel: "Match this subject",
    path: ({ search, offset }) => `subsz?${param({ subs: 1, limit: PAGE, offset, test: search })}`,
    columns: [{ title: "subject", wide: true }, { title: "queue group" }, { title: "connection", number: true }, { title: "sid" }, { title: "delivered", number: true }],
    rows: (answer) => (answer.subscriptions_list ?? []).map((s) => [s.subject, s.qgroup ?? "", whole(s.cid), s.sid, whole(s.msgs)]),
    total: (answer) => answer.total,
  });
  return {
    node: el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Connections and subscriptions"),
      el("h3", null, "Connections"), list.node, el("h3", null, "Subscriptions"), subs.node),
    update: (source) => { list.refresh(source.paused); subs.refresh(source.paused); },
  };
}
