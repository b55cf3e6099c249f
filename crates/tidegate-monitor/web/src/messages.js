// The page that reads messages of a stream, with the operator's token. The token stays in this module's memory:
// it stands in no address and no storage, and a closed tab forgets it.

import { el, say, table } from "./dom.js";
import { bytes, whole } from "./format.js";
import { ask } from "./source.js";

const LIMIT = 20;
let token = "";

// Makes the bytes of a hexadecimal text readable: 16 in a line, with their places and their letters.
export function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const letters = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

// Makes the children of a `pre`. Line ends become elements, because the page shows control characters in texts.
const shown = (part) => (part?.text ?? dump(part?.hex ?? "")).trimEnd().split(/\r?\n/)
  .flatMap((line, at) => [at > 0 ? el("br") : null, line.replaceAll("\t", "    ")]);

export function messages(view) {
  const input = (attributes) => el("input", { autocomplete: "off", spellcheck: "false", maxlength: "200", ...attributes });
  const fields = {
    token: input({ type: "password", value: token, name: "message-token" }),
    stream: input({ type: "text", required: true, value: view.route().part }),
    subject: input({ type: "text", placeholder: "orders.*" }),
    seq: input({ type: "text", inputmode: "numeric", placeholder: "newest" }),
    time: input({ type: "text", placeholder: "2026-11-27T08:00:00Z" }),
  };
  const labels = { token: "Token", stream: "Stream", subject: "Subject", seq: "From sequence", time: "or from time" };
  const found = el("p", { role: "status" });
  const at = el("div");
  let answer;
  let turn = 0;
  const load = async (start) => {
    token = fields.token.value;
    const name = fields.stream.value.trim();
    const values = { stream: name, subject: fields.subject.value.trim(), limit: String(LIMIT), ...start };
    const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
    turn += 1;
    const mine = turn;
    say(found, "The page asks for the messages.");
    try {
      const got = await ask(`messages?${query}`, { authorization: `Bearer ${token}` });
      if (mine !== turn) return;
      answer = got;
      show();
    } catch (e) {
      if (mine !== turn) return;
      answer = undefined;
      at.replaceChildren();
      older.disabled = newer.disabled = true;
      say(found, e.status === 401 ? "The token is missing or wrong: it is the message_token of the server's configuration."
        : `The messages could not be read: ${e.message}.`);
    }
  };
  const button = (text, start) => el("button", { type: "button", onclick: () => load(start()) }, text);
  const older = button("Older", () => ({ before: String(answer?.older ?? "") }));
  const newer = button("Newer", () => ({ seq: String(answer?.newer ?? "") }));
  const newest = button("Newest", () => ({}));
  older.disabled = newer.disabled = true;

  const show = () => {
    const list = answer.messages ?? [];
    const range = list.length > 0 ? `${whole(list[0].seq)} to ${whole(list.at(-1).seq)}` : "none found";
    const more = answer.complete === false ? ` The server looked at ${whole(answer.looked)} messages and stopped; go on with Older or Newer.` : "";
    say(found, `${answer.stream}: ${range}; the stream has ${whole(answer.first_seq)} to ${whole(answer.last_seq)}.${more}`);
    older.disabled = answer.older === null || answer.older === undefined;
    newer.disabled = answer.newer === null || answer.newer === undefined;
    const body = (m) => {
      if (m.error) return m.error;
      const cut = m.body?.cut || m.headers?.cut;
      const alone = cut && el("button", { type: "button", class: "link", onclick: () => load({ seq: String(m.seq), limit: "1" }) }, "more of it");
      return el("div", null, m.headers ? el("pre", { class: "headers" }, shown(m.headers)) : null, el("pre", null, shown(m.body)),
        cut ? el("p", null, `The page shows a part of ${bytes(m.body_bytes)}. `, alone) : null);
    };
    at.replaceChildren(table(`Messages of ${answer.stream}`,
      [{ title: "sequence", number: true }, { title: "time" }, { title: "subject", wide: true }, { title: "size", number: true }, { title: "message", wide: true }],
      list.map((m) => [whole(m.seq), m.time, m.subject, bytes(m.bytes), body(m)]), "none found"));
  };

  const off = el("p", { hidden: true }, "This server shows no messages. The operator allows it with message_token in the configuration (docs/dashboard.md).");
  const form = el("form", {
    class: "tools",
    "aria-label": "Messages",
    onsubmit: (e) => {
      e.preventDefault();
      const [seq, time] = [fields.seq.value.trim(), fields.time.value.trim()];
      load(seq ? { seq } : time ? { time } : {});
    },
  }, Object.entries(fields).map(([name, field]) => el("label", null, labels[name], " ", field)), el("button", { type: "submit" }, "Read"));
  const rest = el("div", null, form, found, el("p", { class: "pages" }, newest, older, newer), at);
  return {
    node: el("section", { "aria-labelledby": "title" }, el("h2", { id: "title" }, "Messages"), off, rest),
    update: (source) => {
      off.hidden = source.overview?.shows_messages !== false;
      rest.hidden = !off.hidden;
    },
  };
}
