// Bundles the page into a directory: `node build.mjs DIRECTORY`. The same source gives the same bytes.

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error("expected the directory of the bundle: node build.mjs DIRECTORY");
  process.exit(2);
}
mkdirSync(out, { recursive: true });
const { version } = JSON.parse(readFileSync(join(here, "node_modules/uplot/package.json"), "utf8"));
const licence = readFileSync(join(here, "node_modules/uplot/LICENSE"), "utf8").trim();
const banner = `/*! The dashboard of tidegate (MIT or Apache-2.0), with uPlot ${version}:\n\n${licence}\n*/`;

await build({
  entryPoints: [join(here, "src/main.js"), join(here, "app.css")],
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  write: false,
  outdir: out,
  logLevel: "warning",
}).then(({ outputFiles }) => {
  const text = (suffix) => outputFiles.find((f) => f.path.endsWith(suffix)).text;
  writeFileSync(join(out, "app.js"), `${banner}\n${text("/main.js")}`);
  writeFileSync(join(out, "app.css"), `${banner}\n${text("/main.css")}${text("/app.css")}`);
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(join(here, file), join(out, file));
