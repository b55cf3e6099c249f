// Tests the page in a real browser: `make dashboard-browser`.
//
// TIDEGATE is the program with the bundle inside; without it only the tests with made-up figures run.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { start } from "../mock.mjs";
import { browser, installed } from "./chromium.mjs";

const PAGES = ["overview", "boundaries", "streams", "messages", "connections", "cluster"];
const TITLES = { overview: "Overview", boundaries: "Boundaries", streams: "Streams and consumers", messages: "Messages", connections: "Connections and subscriptions", cluster: "Cluster" };
const { TIDEGATE, PICTURES } = process.env;
const skip = installed() ? false : "chromium is not installed";
let page;
let mock;

before(async () => {
  if (skip) return;
  page = await browser();
  mock = await start();
});
after(async () => {
  await page?.stop();
  await mock?.stop();
});

// Waits until a condition holds, and shows the text of `seen` if it never does.
async function eventually(holds, seen) {
  for (let n = 0; !holds(); n += 1) {
    if (n > 1200) throw new Error(`never came: ${seen()}`);
    await new Promise((done) => { setTimeout(done, 50); });
  }
}

const figures = (change) => {
  const made = mock.answer;
  mock.answer = (path, query) => change(path, made(path, query), query);
  return () => { mock.answer = made; };
};

test("each page shows its figures at both schemes and widths, without a complaint of the browser", { skip }, async () => {
  for (const [width, scheme] of [[1280, "light"], [360, "dark"]]) {
    await page.size(width, 900);
    await page.scheme(scheme);
    for (const name of PAGES) {
      await page.open(`${mock.url}/dashboard#/${name}`);
      await page.until(`document.querySelector('main h2')?.textContent === ${JSON.stringify(TITLES[name])}`);
      await page.shows("n1");
      await page.until("!document.body.innerText.includes('The page asks')");
      if (name === "overview" || name === "boundaries") await page.until("document.querySelectorAll('canvas').length >= 5");
      else if (name !== "messages") await page.until("document.querySelectorAll('tbody tr').length > 0");
      const wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      assert.ok(wide <= 0, `${name} is ${wide} pixels too wide at ${width}`);
      if (PICTURES) writeFileSync(join(PICTURES, `${name}-${width}-${scheme}.png`), await page.picture(true));
    }
  }
  assert.deepEqual(page.complaints(), []);
});

test("names with HTML and control characters stay text", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/streams`);
  await page.shows("<img src=x onerror=alert(1)>\\u{202e}gnp");
  assert.equal(await page.evaluate("document.images.length"), 0);
});

test("the server's search and pages are used", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/streams`);
  await page.shows("1 to 50 of 120");
  await page.evaluate("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Next').click()");
  await page.shows("51 to 100 of 120");
  await page.evaluate("(() => { const s = document.querySelector('input[type=search]'); s.value = '_119'; s.dispatchEvent(new Event('input')); })()");
  await page.shows("1 to 1 of 1");
  await page.shows("1 to 50 of 240");
  await page.evaluate("document.querySelector('button.link').click()");
  await page.shows("Consumers of ORDERS_119");
  await page.shows("1 to 2 of 2");
});

test("messages are read with the token alone, and stay text", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/messages/ORDERS`);
  await page.until("document.querySelector('main h2')?.textContent === 'Messages'");
  await page.until("document.querySelectorAll('form.tools input').length === 5");
  const fill = (at, text) => page.evaluate(`(() => { document.querySelectorAll("form.tools input")[${at}].value = ${JSON.stringify(text)}; })()`);
  const click = (text) => page.evaluate(`[...document.querySelectorAll('button')].find((b) => b.textContent === ${JSON.stringify(text)}).click()`);
  await click("Read");
  await page.shows("The token is missing or wrong");
  await fill(0, "a-token-of-the-mock");
  await click("Read");
  await page.shows("ORDERS: 81 to 100; the stream has 1 to 100.");
  await page.shows("<img src=x onerror=alert(1)>");
  await page.shows("000000  1b 5b 32 4a 00 ff");
  assert.equal(await page.evaluate("document.images.length + document.querySelectorAll('main script').length"), 0);
  await click("Older");
  await page.shows("ORDERS: 61 to 80");
  assert.ok(!(await page.evaluate("location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)")).includes("a-token"));
  // The browser notes the refused request.
  page.forget();
});

test("a view stops, zooms by key, links to a moment and goes on", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/overview`);
  await page.until("document.querySelectorAll('canvas').length >= 5");
  await page.evaluate("document.querySelector('.area').focus()");
  await page.key("+");
  await page.shows("Stopped:");
  assert.match(await page.evaluate("location.hash"), /at=\d+&span=150$/);
  const hash = await page.evaluate("location.hash");
  await page.open(`${mock.url}/dashboard${hash}`);
  await page.shows("Stopped:");
  const asked = mock.requests;
  await page.evaluate("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Go on live').click()");
  await page.shows("Live,");
  await page.until(`!location.hash.includes("at=")`);
  assert.ok(mock.requests > asked);
  await page.open(`${mock.url}/dashboard#/overview?at=1000000000000&span=60`);
  await page.shows("is kept any more");
});

test("a server that ends is named, and the last figures stay", { skip }, async () => {
  const other = await start();
  await page.open(`${other.url}/dashboard#/boundaries`);
  await page.shows("563 KiB");
  await other.stop();
  await page.shows("The server does not answer since");
  assert.ok(await page.evaluate("document.body.innerText.includes('563 KiB')"));
  page.forget();
});

test("a clock that was set back and a restart are named", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/overview`);
  await page.shows("Live,");
  let restore = figures((path, made) => (made?.now ? { ...made, now: new Date(Date.parse(made.now) - 3_600_000).toISOString() } : made));
  await page.shows("clock was set back by 59 min").catch(() => page.shows("clock was set back by 60 min"));
  restore();
  restore = figures((path, made) => (made?.now ? { ...made, uptime_ms: 5000 } : made));
  await page.shows("The server started again 5 s before");
  restore();
});

test("missing figures are named, and no page is blank", { skip }, async () => {
  const strip = (path, made) => {
    if (path === "/overview") return { now: made.now };
    if (path === "/boundaries") return { ...made, boundaries: [{ name: "log_syncs" }] };
    return {};
  };
  const restore = figures(strip);
  for (const name of PAGES) {
    await page.open(`${mock.url}/dashboard#/${name}`);
    await page.until(`document.querySelector('main h2')?.textContent === ${JSON.stringify(TITLES[name])}`);
    await page.shows("Live,");
    const text = await page.evaluate("document.body.innerText");
    assert.ok(!text.includes("met an error"), text);
    assert.ok(!/undefined|NaN|\[object|not given [a-z]*\/s/.test(text), text);
  }
  await page.open(`${mock.url}/dashboard#/boundaries`);
  await page.shows("not given");
  restore();
  const only = figures((path, made) => (path === "/overview" ? undefined : made));
  await page.open(`${mock.url}/dashboard#/overview`);
  await page.shows("gives no figures of a server");
  only();
  const nonsense = figures(() => "{\"boundaries\":");
  await page.open(`${mock.url}/dashboard#/overview`);
  await page.shows("is no JSON");
  nonsense();
  page.forget();
});

test("a tab that stays open keeps its memory", { skip }, async () => {
  await page.open(`${mock.url}/dashboard#/boundaries`);
  await page.shows("Live,");
  await page.until("document.querySelectorAll('canvas').length >= 5");
  const nodes = () => page.evaluate("document.querySelectorAll('*').length");
  const first = await nodes();
  const asked = mock.requests;
  await eventually(() => mock.requests >= asked + 12, () => mock.requests);
  assert.ok(Math.abs((await nodes()) - first) < 50, "the page grows");
});

test("the page inside the program shows the figures of the server", { skip: skip || (TIDEGATE ? false : "TIDEGATE is not set") }, async () => {
  const data = mkdtempSync(join(tmpdir(), "dashboard-data-"));
  const server = spawn(TIDEGATE, ["serve", "-p", "-1", "-m", "-1", "--data", data], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  let client;
  try {
    const read = (bytes) => { log += bytes; };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    await eventually(() => log.includes("Server is ready"), () => log);
    const [, url] = log.match(/dashboard is at (http:\S+)\/dashboard/);
    const [, port] = log.match(/client connections on \S*:(\d+)/);
    client = connect(Number(port), "127.0.0.1");
    let got = "";
    client.on("data", (bytes) => { got += bytes; });
    const config = JSON.stringify({ name: "S", subjects: ["s"] });
    client.write(`CONNECT {"verbose":false}\r\nSUB r 1\r\nPUB $JS.API.STREAM.CREATE.S r ${config.length}\r\n${config}\r\n`);
    await eventually(() => got.includes("did_create"), () => got);
    for (let n = 0; n < 20; n += 1) client.write("PUB s r 5\r\nhello\r\n");
    await eventually(() => got.includes('"seq":20'), () => got);
    await page.size(1280, 900);
    for (const name of PAGES) {
      await page.open(`${url}/dashboard#/${name}`);
      await page.until(`document.querySelector('main h2')?.textContent === ${JSON.stringify(TITLES[name])}`);
      await page.shows("Live,");
    }
    await page.open(`${url}/dashboard#/boundaries/log_syncs`);
    await page.until("document.querySelectorAll('canvas').length >= 1");
    const { boundaries } = await (await fetch(`${url}/boundaries`)).json();
    const items = boundaries.find((b) => b.name === "log_syncs").items_max;
    await page.shows(`${items} commands`);
    await page.open(`${url}/dashboard#/streams`);
    await page.shows("1 to 1 of 1");
    const answer = await fetch(`${url}/dashboard`);
    assert.match(answer.headers.get("content-security-policy"), /frame-ancestors 'none'/);
    assert.deepEqual(page.complaints(), []);
    server.kill("SIGKILL");
    await page.shows("The server does not answer since");
  } finally {
    client?.destroy();
    server.kill("SIGKILL");
    rmSync(data, { recursive: true, force: true, maxRetries: 5 });
  }
});
