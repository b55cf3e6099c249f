// Plots with a legend in words, a table beside them, and zoom by mouse and keyboard.

import uPlot from "uplot";

import { el, say, table } from "./dom.js";
import { clock, short } from "./format.js";

const HEIGHT = 190;
const ROWS = 30;
// The steps of the time axis, in seconds, and of an axis of bytes: both in units that people count by.
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const BYTE_STEPS = Array.from({ length: 60 }, (_, i) => 2 ** i);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";

// Every plot that is shown, so that a change of the colour scheme draws all of them again.
const shown = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const plot of shown) plot.rebuild();
});

// A plot in a figure. `options`:
// title, help    the caption, and a sentence that says how to read the plot
// series         a list of {label, color (0 to 8), points, step, fill, dash}
// x              "time", or {label, format} for a logarithmic axis
// format         writes a value of the y axis
// log, stacked   a logarithmic y axis; series drawn on each other
// binary         returns true where the steps of the y axis are powers of two; x has the same
// zoom           called with the bounds of a selection on a time axis, and with "in", "out", "left", "right"
// marks          returns a list of {x, label} to mark with lines
export class Plot {
  constructor(options) {
    this.options = options;
    this.data = null;
    this.area = el("div", {
      class: "area", tabindex: options.zoom ? "0" : undefined, role: "img", "aria-label": options.title,
      onkeydown: (e) => this.key(e),
    });
    this.legend = el("ul", { class: "legend" });
    this.empty = el("p", { class: "empty" }, "No samples yet.");
    this.tableAt = el("div");
    this.details = el("details", { ontoggle: () => this.fillTable() }, el("summary", null, `Table: ${options.title}`), this.tableAt);
    this.node = el("figure", { class: "plot" },
      el("figcaption", null, el("h3", null, options.title), options.help && el("p", { class: "help" }, options.help)),
      this.area, this.empty, this.legend, this.details);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.area);
    shown.add(this);
  }

  destroy() {
    shown.delete(this);
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  key(e) {
    const step = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out" }[e.key];
    if (!step || !this.options.zoom || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    this.options.zoom(step);
  }

  // Shows `data`: the x values and one list a series, and on a time axis the bounds of the view.
  show(data, bounds, series) {
    this.bounds = bounds;
    if (series && JSON.stringify(series) !== JSON.stringify(this.options.series)) {
      this.options.series = series;
      this.plot?.destroy();
      this.plot = null;
    }
    this.data = data;
    const has = data[0].length > 0 && data.slice(1).some((s) => s.some((v) => v !== null && v !== undefined));
    this.empty.hidden = has;
    this.area.hidden = !has;
    if (has) this.draw();
    if (this.details.open) this.fillTable();
    this.describe(has);
  }

  describe(has) {
    const { series, format, title } = this.options;
    const last = (i) => this.data[i + 1].findLast((v) => v !== null && v !== undefined);
    const items = has ? series.map((s, i) => [s, last(i)]) : [];
    const isTime = this.options.x === "time";
    const key = items.map(([s, v]) => (isTime ? `${s.label}: ${v === undefined ? "no value" : format(v)}` : s.label));
    if (this.said !== key.join("\n")) {
      this.said = key.join("\n");
      this.legend.replaceChildren(...items.map(([s], i) => el("li", null,
        el("span", { class: `swatch c${s.color}`, "aria-hidden": "true" }), key[i])));
      const summary = has ? `${title}. ${isTime ? "Newest values: " : "Shown: "}${key.join(", ")}. The table below has the numbers.` : `${title}: no samples yet.`;
      this.area.setAttribute("aria-label", summary);
    }
  }

  drawn() {
    const { stacked } = this.options;
    if (!stacked) return this.data;
    // The first series lies at the bottom. uPlot draws the sums from the top one down.
    const sums = [];
    this.data.slice(1).forEach((s, k) => {
      sums.push(s.map((v, i) => (v === null ? null : v + (k > 0 ? sums[k - 1][i] ?? 0 : 0))));
    });
    return [this.data[0], ...sums.reverse()];
  }

  draw() {
    const width = this.area.clientWidth;
    if (width === 0) return;
    const data = this.drawn();
    if (!this.plot) {
      this.plot = new uPlot(this.settings(width), data, this.area);
    } else {
      this.plot.setData(data, false);
    }
    this.scale(data);
  }

  scale(data) {
    const xs = data[0];
    const [min, max] = this.bounds ?? [xs[0], xs.at(-1)];
    this.plot.batch(() => {
      this.plot.setScale("x", { min, max });
    });
  }

  resize() {
    const width = this.area.clientWidth;
    if (width === 0) return;
    if (!this.plot) {
      if (this.data && !this.area.hidden) this.draw();
    } else if (width !== this.plot.width) {
      this.plot.setSize({ width, height: HEIGHT });
    }
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data && !this.area.hidden) this.draw();
  }

  settings(width) {
    const { series, x, format, log, binary, stacked, zoom, marks } = this.options;
    const [text, grid] = [color("--text-soft"), color("--grid")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
    const isTime = x === "time";
    const lines = series.map((s) => ({
      label: s.label,
      stroke: color(`--c${s.color}`),
      width: s.points ? 0 : 1.5,
      dash: s.dash ? [6, 4] : undefined,
      fill: stacked || s.fill ? color(stacked ? `--c${s.color}` : `--c${s.color}-soft`) : undefined,
      paths: s.points ? () => null : s.step ? uPlot.paths.stepped({ align: -1 }) : undefined,
      points: { show: s.points ? true : undefined, size: s.points ? 8 : 4, fill: color(`--c${s.color}`) },
      spanGaps: !isTime,
    }));
    return {
      width,
      height: HEIGHT,
      padding: [8, 26, 0, 0],
      legend: { show: false },
      cursor: {
        drag: { x: Boolean(zoom), y: false, setScale: false },
        points: { size: 6 },
        sync: isTime ? { key: "time" } : undefined,
        lock: false,
      },
      scales: {
        x: isTime ? { time: false, auto: false } : { time: false, distr: 3, log: x.binary?.() ? 2 : 10, auto: false },
        y: log ? { distr: 3, log: binary?.() ? 2 : 10 } : { range: (u, min, max) => [Math.min(0, min ?? 0), max > 0 ? max * 1.08 : 1] },
      },
      axes: [
        isTime
          ? { ...axis, size: 26, space: 70, incrs: TIME_STEPS, values: (u, list) => list.map((s) => clock(s * 1000)) }
          : { ...axis, size: 30, values: (u, list) => list.map((v) => (v === null ? "" : x.format(v))) },
        {
          ...axis,
          size: (u, values) => 16 + 6.5 * Math.max(4, ...(values ?? []).map((v) => v.length)),
          incrs: binary?.() && !log ? BYTE_STEPS : undefined,
          values: (u, list) => list.map((v) => (v === null ? "" : format(v))),
        },
      ],
      series: [{}, ...(stacked ? lines.reverse() : lines)],
      hooks: {
        setSelect: [(u) => {
          if (!zoom || u.select.width < 5) return;
          const at = (px) => u.posToVal(px, "x");
          zoom([at(u.select.left), at(u.select.left + u.select.width)]);
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        draw: [(u) => {
          for (const mark of marks?.() ?? []) {
            const px = u.valToPos(mark.x, "x", true);
            if (!(px >= u.bbox.left && px <= u.bbox.left + u.bbox.width)) continue;
            const c = u.ctx;
            c.save();
            c.strokeStyle = c.fillStyle = text;
            c.setLineDash([4, 4]);
            c.beginPath();
            c.moveTo(px, u.bbox.top);
            c.lineTo(px, u.bbox.top + u.bbox.height);
            c.stroke();
            c.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
            const right = px > u.bbox.left + u.bbox.width / 2;
            c.textAlign = right ? "right" : "left";
            c.fillText(mark.label, px + (right ? -6 : 6) * devicePixelRatio, u.bbox.top + 12 * devicePixelRatio);
            c.restore();
          }
        }],
      },
    };
  }

  // Fills the table with the newest rows, only while it is open.
  fillTable() {
    if (!this.details.open || !this.data) return;
    const { series, x, format, title } = this.options;
    const isTime = x === "time";
    const columns = [{ title: isTime ? "time" : x.label, number: !isTime }, ...series.map((s) => ({ title: s.label, number: true }))];
    const order = this.data[0].map((_, i) => i);
    const picked = isTime ? order.slice(-ROWS).reverse() : order.filter((i) => this.data.slice(1).some((s, k) => series[k].points && s[i] !== null));
    const rows = picked.map((i) => [
      isTime ? clock(this.data[0][i] * 1000) : x.format(this.data[0][i]),
      ...this.data.slice(1).map((s) => (s[i] === null || s[i] === undefined ? "" : format(s[i]))),
    ]);
    const open = this.tableAt.contains(document.activeElement);
    if (open) return;
    this.tableAt.replaceChildren(table(isTime ? `${title}, the newest ${ROWS} samples` : title, columns, rows, "no samples yet"));
  }
}

export { say, short };
