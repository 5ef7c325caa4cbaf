"use strict";
// What every page draws with: elements, numbers as people read them, charts.
const NS = "http://www.w3.org/2000/svg";
const PAD = { left: 52, right: 8, top: 6, bottom: 20 };
const plots = [];

const element = (name, attributes, parent) => {
  const node = document.createElementNS(NS, name);
  for (const key in attributes) if (key === "style") node.style.cssText = attributes[key]; else node.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(node);
  return node;
};
const html = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
const color = (line) => `var(${line.color})`;

// -- numbers as people read them
const digits = (v) => { const a = Math.abs(v); return v.toFixed(a >= 99.5 || v === 0 ? 0 : a >= 9.95 ? 1 : 2); };
const trimmed = (v) => String(Number(digits(v)));
const duration = (s) => {
  if (s === 0) return "0 s";
  if (s < 1e-3) return `${trimmed(s * 1e6)} us`;
  if (s < 1) return `${trimmed(s * 1e3)} ms`;
  if (s < 120) return `${trimmed(s)} s`;
  if (s < 7200) return s % 60 < 0.5 ? `${Math.round(s / 60)} min` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return s % 3600 < 30 ? `${Math.round(s / 3600)} h` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
};
// A moment, as finely told as moments so far apart need.
const moment = (s, apart) => {
  if (apart >= 60 || s < 1) return duration(s);
  const minutes = Math.floor(s / 60 + 1e-9), rest = Math.abs(s - 60 * minutes).toFixed(Math.max(0, Math.ceil(-Math.log10(apart) - 1e-9)));
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
};
const size = (v) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (Math.abs(v) >= 1024 && i < 4) { v /= 1024; i += 1; }
  return `${trimmed(v)} ${units[i]}`;
};
const plain = (v) => (Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en-US") : Math.abs(v) >= 0.01 || v === 0 ? trimmed(v) : v.toExponential(1));
const words = (unit, v) => {
  if (unit === "s") return duration(v);
  if (unit === "share") return `${Math.round(v * 100)} %`;
  if (unit === "%") return `${Math.round(v)} %`;
  if (unit === "bytes") return size(v);
  if (unit === "bytes/s") return `${size(v)}/s`;
  return plain(v);
};

// -- scales
const step = (span, count, base) => {
  const raw = span / Math.max(1, count);
  if (base === 2) return 2 ** Math.ceil(Math.log2(raw));
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 2.5, 5, 10].find((m) => m * power >= raw * 0.999);
};
const ticks = (low, high, count, base, size = step(high - low || 1, count, base)) => {
  const found = [];
  for (let v = Math.ceil(low / size - 1e-9) * size; v <= high + size * 1e-6; v += size) found.push(v);
  return found;
};
const TIMES = [1e-3, 2e-3, 5e-3, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const timeStep = (span, count) => TIMES.find((s) => span / s <= count) || 86400 * Math.ceil(span / 86400 / count);
const bisect = (xs, x) => {
  let low = 0, high = xs.length;
  while (low < high) { const mid = (low + high) >> 1; if (xs[mid] <= x) low = mid + 1; else high = mid; }
  return low;
};

// A stroke sideways with a mouse or a pen: `during` and `done` get where it began and where it is.
const brush = (box, at, during, done) => {
  let from = null;
  const stroke = (event) => from && Math.abs(event.clientX - from[1]) > 6 && [from[0], at(event)].sort((a, b) => a - b);
  box.addEventListener("pointerdown", (event) => {
    from = event.pointerType === "touch" || event.button ? null : [at(event), event.clientX];
  });
  box.addEventListener("pointermove", (event) => { if (!event.buttons) from = null; const span = stroke(event); if (span) { box.setPointerCapture(event.pointerId); during(...span); } });
  box.addEventListener("pointerup", (event) => { const span = stroke(event); from = null; if (span) done(...span); });
  box.addEventListener("pointercancel", () => { from = null; });
};

// -- one chart
class Plot {
  constructor(spec, wall_s) {
    this.box = document.getElementById(`chart-${spec.id}`);
    this.tip = html("div", "tip");
    this.tip.hidden = true;
    this.legend = html("ul", "keys");
    this.back = html("button", "back", "reset");
    this.back.type = "button";
    this.back.addEventListener("click", () => { this.zoom(null); this.box.focus(); });
    this.box.before(this.back);
    this.box.after(this.legend);
    this.listen();
    this.take(spec, wall_s);
  }

  // Draws these values; a page that follows a run calls it again.
  take(spec, wall_s) {
    this.spec = spec;
    this.wall_s = wall_s || 0;
    this.whole = spec.x === "step" ? [0, Math.max(1, ...spec.lines[0].t_s.filter((v) => v !== null))] : [0, this.lastTime()];
    this.legend.style.display = spec.lines.length < 2 && spec.kind !== "stack" ? "none" : "";
    this.keys();
    this.draw();
  }

  // Every chart of the same axis shows this span, or all of it again.
  zoom(span) {
    const [low, high] = this.whole, [a, b] = span || this.whole, wide = Math.max(b - a, (high - low) / 1e3);
    const view = wide < high - low ? [Math.max(low, Math.min(a, high - wide)), Math.min(high, Math.max(low, a) + wide)] : null;
    for (const plot of plots) if (plot.spec.x === this.spec.x) { plot.view = view; plot.draw(); }
    this.share(null);
  }

  lastTime() {
    const ends = this.spec.lines.map((line) => (line.t_s ? line.t_s[line.t_s.length - 1] : 0));
    return Math.max(this.wall_s, this.spec.edges ? this.spec.edges[this.spec.edges.length - 1] : 0, ...ends) || 1;
  }
  values() {
    const [low, high] = this.domain, shown = (t) => !this.view || (t >= low && t <= high);
    return this.spec.lines.flatMap((line) => line.values.filter((v, i) => v !== null && shown(line.t_s[i])));
  }
  highest() {
    const sorted = this.values().sort((a, b) => a - b);
    if (!sorted.length) return 1;
    const top = sorted[sorted.length - 1];
    // A few long steps must not press all others onto the axis: the line leaves the chart there, the tip tells.
    const most = sorted[Math.floor(0.97 * (sorted.length - 1))];
    if (this.spec.unit === "%") return Math.max(100, top);
    this.clipped = this.spec.id === "step-time" && top > 6 * most;
    return (this.clipped ? most * 2.5 : top) * 1.08 || 1;
  }
  lowest() { return Math.min(...this.values(), Infinity); }

  keys() {
    this.legend.replaceChildren(...this.spec.lines.map((line) => {
      const item = html("li"), mark = html("i");
      mark.style.background = color(line);
      item.append(mark, line.label);
      return item;
    }));
  }

  x(v) { return PAD.left + ((v - this.domain[0]) / (this.domain[1] - this.domain[0])) * (this.width - PAD.left - PAD.right); }
  y(v) { return this.height - PAD.bottom - ((v - this.low) / (this.high - this.low)) * (this.height - PAD.top - PAD.bottom); }

  draw() {
    this.width = Math.max(160, this.box.clientWidth);
    this.height = Math.max(80, this.box.clientHeight);
    this.domain = this.view || this.whole;
    this.back.hidden = !this.view;
    this.high = this.spec.kind === "stack" ? 1 : this.highest();
    this.low = this.spec.id === "loss" ? Math.min(0, this.lowest()) : 0;
    const svg = element("svg", { viewBox: `0 0 ${this.width} ${this.height}`, "aria-hidden": "true" });
    this.axes(svg);
    const clip = `clip-${this.spec.id}`;
    element("rect", { x: PAD.left, y: PAD.top - 2, width: this.width - PAD.left - PAD.right, height: this.height - PAD.top - PAD.bottom + 3 }, element("clipPath", { id: clip }, element("defs", {}, svg)));
    const marks = element("g", { "clip-path": `url(#${clip})` }, svg);
    if (this.spec.kind === "stack") this.stack(marks); else for (const line of this.spec.lines) this.line(marks, line);
    for (const mark of this.spec.marks || []) {
      const line = element("line", { class: "change", x1: this.x(mark.t_s), x2: this.x(mark.t_s), y1: PAD.top, y2: this.height - PAD.bottom }, marks);
      element("title", {}, line).textContent = mark.words;
    }
    this.brushed = element("rect", { class: "brushed", y: PAD.top, height: this.height - PAD.top - PAD.bottom }, svg);
    this.cursor = element("line", { class: "cursor", y1: PAD.top, y2: this.height - PAD.bottom, visibility: "hidden" }, svg);
    this.dots = this.spec.kind === "stack" ? [] : this.spec.lines.map((line) => element("circle", { class: "dot", r: 3.5, style: `fill:${color(line)}`, visibility: "hidden" }, svg));
    this.box.replaceChildren(svg, this.tip);
  }

  axes(svg) {
    const { unit } = this.spec;
    const rows = this.spec.kind === "stack" ? [0, 0.25, 0.5, 0.75, 1] : ticks(this.low, this.high, 4, unit.startsWith("bytes") ? 2 : 10);
    for (const v of rows) {
      element("line", { class: v === this.low ? "base" : "grid", x1: PAD.left, x2: this.width - PAD.right, y1: this.y(v), y2: this.y(v) }, svg);
      element("text", { x: PAD.left - 7, y: this.y(v) + 4, "text-anchor": "end" }, svg).textContent = words(unit, v).replace("/s", "");
    }
    const count = Math.max(2, Math.floor((this.width - PAD.left) / 85));
    const [low, high] = this.domain, apart = this.spec.x === "step" ? step(high - low, count, 10) : timeStep(high - low, count);
    for (const v of ticks(low, high, count, 10, apart)) {
      const label = element("text", { x: Math.min(this.x(v), this.width - 4), y: this.height - 5, "text-anchor": this.x(v) > this.width - 30 ? "end" : "middle" }, svg);
      label.textContent = this.spec.x === "step" ? plain(v) : moment(v, apart);
    }
  }

  stack(parent) {
    const { edges, lines } = this.spec;
    const base = new Array(edges.length - 1).fill(0);
    for (const line of lines) {
      let up = "", down = "";
      for (let i = 0; i < base.length; i += 1) {
        const low = base[i], high = Math.min(1, low + (line.values[i] || 0));
        const a = this.x(edges[i]).toFixed(1), b = this.x(edges[i + 1]).toFixed(1);
        up += `L${a} ${this.y(high).toFixed(1)}L${b} ${this.y(high).toFixed(1)}`;
        down = `L${b} ${this.y(low).toFixed(1)}L${a} ${this.y(low).toFixed(1)}` + down;
        base[i] = high;
      }
      element("path", { class: "band", d: `M${up.slice(1)}${down}Z`, style: `fill:${color(line)}` }, parent);
    }
  }

  line(parent, line) {
    const seen = line.values.filter((v, i) => v !== null && line.t_s[i] !== null).length;
    // Of few steps most moments have none: strokes between neighbours would hide the others.
    if (this.spec.id === "step-time" && seen < 60) {
      line.values.forEach((v, i) => {
        if (v !== null) element("rect", { class: "pillar", x: this.x(line.t_s[i]) - 2, width: 4, y: this.y(v), height: this.y(this.low) - this.y(v), style: `fill:${color(line)}` }, parent);
      });
      return;
    }
    let path = "", open = false;
    line.values.forEach((v, i) => {
      if (v === null || line.t_s[i] === null) { open = false; return; }
      path += `${open ? "L" : "M"}${this.x(line.t_s[i]).toFixed(1)} ${this.y(v).toFixed(1)}`;
      open = true;
    });
    if (path) element("path", { class: "line", d: path, style: `stroke:${color(line)}` }, parent);
  }

  // What stands at x: [label, words, colour, value].
  at(x) {
    const { spec } = this;
    if (spec.kind === "stack") {
      const i = bisect(spec.edges, x) - 1;
      if (i < 0 || i >= spec.edges.length - 1) return [];
      return spec.lines.map((line) => [line.label, words("share", line.values[i] || 0), line, line.values[i] || 0]).filter((row) => row[3] >= 0.005);
    }
    return spec.lines.map((line) => {
      const right = bisect(line.t_s, x);
      const i = right > 0 && (right >= line.t_s.length || x - line.t_s[right - 1] < line.t_s[right] - x) ? right - 1 : Math.min(right, line.t_s.length - 1);
      const v = line.values[i];
      return v === null || v === undefined ? null : [line.label, words(spec.unit, v), line, v];
    });
  }

  point(x) {
    const inside = x !== null && x >= this.domain[0] && x <= this.domain[1];
    this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    const rows = inside ? this.at(x) : [];
    this.dots.forEach((dot, i) => {
      const row = rows[i];
      const shown = row && row[3] <= this.high;
      dot.setAttribute("visibility", shown ? "visible" : "hidden");
      if (shown) { dot.setAttribute("cx", this.x(x)); dot.setAttribute("cy", this.y(row[3])); }
    });
    if (!inside) { this.tip.hidden = true; return; }
    this.cursor.setAttribute("x1", this.x(x));
    this.cursor.setAttribute("x2", this.x(x));
    return rows;
  }

  show(x) {
    const rows = this.point(x);
    if (!rows) return;
    this.tip.replaceChildren(html("b", "", this.spec.x === "step" ? `step ${plain(Math.round(x))}` : moment(x, (this.domain[1] - this.domain[0]) / 100)));
    for (const row of rows) {
      if (!row) continue;
      const line = html("span"), label = html("span"), mark = html("i");
      mark.style.background = color(row[2]);
      label.append(mark, row[0]);
      label.style.display = "inline";
      line.append(label, html("span", "", row[1]));
      this.tip.append(line);
    }
    this.tip.hidden = false;
    const px = this.x(x), room = this.box.clientWidth;
    const left = px + 12 + this.tip.offsetWidth > room ? px - 12 - this.tip.offsetWidth : px + 12;
    this.tip.style.transform = `translate(${Math.max(0, Math.min(left, room - this.tip.offsetWidth))}px, ${PAD.top}px)`;
  }

  listen() {
    const at = (event) => {
      const px = event.clientX - this.box.getBoundingClientRect().left;
      const x = this.domain[0] + ((px - PAD.left) / (this.width - PAD.left - PAD.right)) * (this.domain[1] - this.domain[0]);
      return Math.max(this.domain[0], Math.min(this.domain[1], x));
    };
    this.box.addEventListener("pointermove", (event) => this.share(at(event)));
    this.box.addEventListener("pointerdown", (event) => this.share(at(event)));
    brush(this.box, at, (a, b) => {
      this.brushed.setAttribute("x", this.x(a));
      this.brushed.setAttribute("width", this.x(b) - this.x(a));
    }, (a, b) => this.zoom([a, b]));
    const around = (x, wide) => this.zoom([x - wide / 2, x + wide / 2]);
    // Fingers cannot draw a span, they read: two taps go closer.
    this.box.addEventListener("dblclick", (event) => { if (this.view) this.zoom(null); else around(at(event), (this.domain[1] - this.domain[0]) / 4); });
    this.box.addEventListener("pointerleave", () => this.share(null));
    this.box.addEventListener("blur", () => this.share(null));
    this.box.addEventListener("keydown", (event) => {
      const size = (this.domain[1] - this.domain[0]) / (event.shiftKey ? 20 : 100);
      const now = this.current === undefined || this.current === null ? (this.domain[0] + this.domain[1]) / 2 : this.current;
      const next = { ArrowLeft: now - size, ArrowRight: now + size, Home: this.domain[0], End: this.domain[1], Escape: null, "+": now, "-": now }[event.key];
      if (next === undefined || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (event.key === "Escape") this.zoom(null);
      else if ("+-".includes(event.key)) around(now, (this.domain[1] - this.domain[0]) * (event.key === "+" ? 0.5 : 2));
      this.share(next === null ? null : Math.max(this.domain[0], Math.min(this.domain[1], next)));
    });
  }

  // One cursor through every chart of the same axis; the words only where the reader is.
  share(x) {
    this.current = x;
    for (const plot of plots) if (plot !== this && plot.spec.x === this.spec.x) plot.point(x);
    for (const plot of plots) if (plot !== this) plot.tip.hidden = true;
    this.show(x);
  }
}
