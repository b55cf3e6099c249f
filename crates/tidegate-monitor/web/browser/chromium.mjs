// Drives Debian's chromium through its debugging pipe, so that the tests of the page need no further package.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PROGRAM = process.env.CHROMIUM ?? "chromium";
const PATIENCE_MS = 20_000;

export const installed = () => spawnSync(PROGRAM, ["--version"], { stdio: "ignore" }).status === 0;

// Starts a browser with one page. `stop` ends it.
export async function browser() {
  const profile = mkdtempSync(join(tmpdir(), "dashboard-"));
  const child = spawn(PROGRAM, ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const [to, from] = [child.stdio[3], child.stdio[4]];
  const waiting = new Map();
  const heard = [];
  let [next, rest, session] = [0, "", undefined];
  from.on("data", (bytes) => {
    const parts = (rest + bytes).split("\0");
    rest = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      const done = waiting.get(message.id);
      if (done) {
        waiting.delete(message.id);
        if (message.error) done.reject(new Error(message.error.message));
        else done.resolve(message.result);
      } else if (message.method) {
        heard.push(message);
      }
    }
  });
  const call = (method, params = {}) => new Promise((resolve, reject) => {
    const id = (next += 1);
    waiting.set(id, { resolve, reject });
    to.write(`${JSON.stringify({ id, method, params, sessionId: session })}\0`);
  });
  const { targetInfos } = await call("Target.getTargets");
  const { targetId } = targetInfos.find((t) => t.type === "page");
  session = (await call("Target.attachToTarget", { targetId, flatten: true })).sessionId;
  await Promise.all(["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"].map((m) => call(m)));

  const page = {
    call,
    // What the page or the browser complained about: errors, refused scripts, uncaught exceptions.
    complaints: () => heard.flatMap(({ method, params }) => {
      if (method === "Runtime.exceptionThrown") return [params.exceptionDetails.exception?.description ?? params.exceptionDetails.text];
      if (method === "Log.entryAdded" && params.entry.level === "error") return [params.entry.text];
      if (method === "Runtime.consoleAPICalled" && params.type === "error") return [JSON.stringify(params.args)];
      return [];
    }),
    forget: () => { heard.length = 0; },
    open: async (url) => {
      await call("Page.navigate", { url: "about:blank" });
      await call("Page.navigate", { url });
    },
    evaluate: async (expression) => {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },
    // Waits until an expression is true in the page.
    until: async (expression) => {
      const end = Date.now() + PATIENCE_MS;
      for (;;) {
        const found = await page.evaluate(`Boolean(${expression})`).catch(() => false);
        if (found) return;
        if (Date.now() > end) {
          throw new Error(`never true: ${expression}\nthe page shows: ${await page.evaluate("document.body.innerText.slice(0, 2000)")}`);
        }
        await new Promise((done) => { setTimeout(done, 50); });
      }
    },
    shows: (text) => page.until(`document.body.innerText.includes(${JSON.stringify(text)})`),
    size: (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 }),
    scheme: (value) => call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] }),
    key: async (key) => {
      await call("Input.dispatchKeyEvent", { type: "keyDown", key, text: key.length === 1 ? key : undefined });
      await call("Input.dispatchKeyEvent", { type: "keyUp", key });
    },
    picture: async (full = false) => Buffer.from((await call("Page.captureScreenshot", { captureBeyondViewport: full })).data, "base64"),
    stop: async () => {
      const ended = new Promise((done) => { child.on("exit", done); });
      child.kill();
      await ended;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return page;
}
