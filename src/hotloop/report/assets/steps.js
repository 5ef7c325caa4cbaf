// The lengths of all steps, and one step as it ran.
const STEP_KINDS = [["steps", "other steps", "--l-0"], ["evaluation", "with an evaluation", "--p-evaluation"], ["checkpoint", "with a checkpoint", "--p-checkpoint"]];

const histogram = (data) => {
  const box = document.getElementById("histogram"), counts = data.histogram;
  if (!box || !counts) return () => {};
  const { edges_s: edges, log } = counts, low = edges[0], high = edges[edges.length - 1];
  const most = Math.max(...edges.slice(1).map((_, i) => STEP_KINDS.reduce((sum, [name]) => sum + counts[name][i], 0)));
  const shown = STEP_KINDS.filter(([name]) => counts[name].some(Boolean));
  const on = (v) => (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
  const marks = () => {
    if (!log) return ticks(low, high, 6, 10);
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) for (const m of [1, 2, 5]) if (m * power >= low && m * power <= high) found.push(m * power);
    return found;
  };
  if (shown.length > 1) {
    const list = html("ul", "keys");
    for (const [, label, name] of shown) { const item = html("li"), mark = html("i"); mark.style.background = `var(${name})`; item.append(mark, label); list.append(item); }
    box.after(list);
  }
  const draw = () => {
    const width = Math.max(160, box.clientWidth), height = Math.max(80, box.clientHeight), base = height - PAD.bottom, top = PAD.top + 28;
    const x = (v) => PAD.left + on(v) * (width - PAD.left - PAD.right), y = (n) => base - (n / most) * (base - top);
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const n of ticks(0, most, 4, 10).filter(Number.isInteger)) {
      element("line", { class: n ? "grid" : "base", x1: PAD.left, x2: width - PAD.right, y1: y(n), y2: y(n) }, svg);
      element("text", { x: PAD.left - 7, y: y(n) + 4, "text-anchor": "end" }, svg).textContent = plain(n);
    }
    let free = -Infinity;
    for (const v of marks()) if (x(v) - free > 46) {
      free = x(v);
      element("text", { x: Math.min(free, width - 4), y: height - 5, "text-anchor": free > width - 30 ? "end" : "middle" }, svg).textContent = duration(v);
    }
    for (let i = 0; i + 1 < edges.length; i += 1) {
      let under = base;
      for (const [name, label, colour] of shown) {
        const n = counts[name][i];
        if (!n) continue;
        const tall = Math.max(2, base - y(n));  // one among thousands is still there
        under -= tall;
        const bar = element("rect", { class: "count", x: x(edges[i]), width: Math.max(1, x(edges[i + 1]) - x(edges[i]) - 1), y: under, height: tall, style: `fill:var(${colour})` }, svg);
        element("title", {}, bar).textContent = `${plain(n)} ${n === 1 ? "step" : "steps"} ${name === "steps" ? "" : `${label} `}of ${duration(edges[i])} to ${duration(edges[i + 1])}`;
      }
    }
    const named = data.step_s ? [["median", data.step_s.median], ["95 %", data.step_s.p95]] : [];
    named.filter(([, v]) => v >= low && v <= high).forEach(([name, v], line) => {
      const end = x(v) > width - 110;
      element("line", { class: "cursor", x1: x(v), x2: x(v), y1: PAD.top, y2: base }, svg);
      element("text", { class: "mark", x: x(v) + (end ? -4 : 4), y: PAD.top + 8 + 13 * line, "text-anchor": end ? "end" : "start" }, svg).textContent = `${name} ${duration(v)}`;
    });
    box.replaceChildren(svg);
  };
  draw();
  return draw;
};

const waterfall = (data) => {
  const figure = document.getElementById("waterfall");
  if (!figure) return () => {};
  const ROW = 19, AXIS = 18, [box, said] = [figure.querySelector(".lanes"), figure.querySelector("output")];
  const buttons = [...figure.querySelectorAll("button")], back = buttons.pop();
  let one = data.waterfall[0], view = [0, one.seconds], current = null;
  const told = ([start, seconds, , , words]) => `${words}: ${duration(seconds)}, from ${duration(Math.max(0, start))}`;
  const spans = () => one.lanes.flatMap((lane) => lane.spans);
  const whole = () => { view = [0, one.seconds]; current = null; draw(); };
  const zoom = (a, b) => { const least = one.seconds / 1e5; view = [Math.max(0, a), Math.min(one.seconds, Math.max(b, a + least))]; draw(); };
  const draw = () => {
    const width = Math.max(160, box.clientWidth), narrow = width < 600, left = narrow ? 0 : 96, head = narrow ? 15 : 0;
    const x = (v) => left + ((v - view[0]) / (view[1] - view[0])) * (width - left);
    const svg = element("svg", { "aria-hidden": "true" });
    let y = AXIS;
    for (const v of ticks(0, view[1] - view[0], Math.floor(width / 110), 10)) {
      element("line", { class: "grid", x1: x(view[0] + v), x2: x(view[0] + v), y1: AXIS - 3, y2: 1e4 }, svg);
      element("text", { class: "tick", x: Math.min(width, x(view[0] + v) + 3), y: 11, "text-anchor": x(view[0] + v) > width - 50 ? "end" : "start" }, svg).textContent = `${view[0] ? "+" : ""}${duration(v)}`;
    }
    for (const lane of one.lanes) {
      element("text", { class: "lane", x: 0, y: y + 13 }, svg).textContent = lane.label;
      y += head;
      for (const span of lane.spans) {
        const [start, seconds, depth, phase, words] = span, a = Math.max(left, x(start)), b = Math.min(width, x(start + seconds));
        if (b - left < 0.01 || width - a < 0.01) continue;  // a neighbour only
        const group = element("g", { class: span === current ? "current" : "" }, svg), wide = Math.max(0.8, b - a);
        element("rect", { x: a, width: Math.max(0.8, wide - 0.5), y: y + depth * ROW, height: ROW - 1.5, rx: 2, style: `fill:var(--p-${phase})` }, group);
        const fits = Math.floor((wide - 8) / 6.3);
        if (fits > 2) element("text", { x: a + 4, y: y + depth * ROW + 13 }, group).textContent = words.length > fits ? `${words.slice(0, fits - 1)}…` : words;
        element("title", {}, group).textContent = told(span);
        group.addEventListener("click", () => { current = span; zoom(start, start + seconds); said.textContent = told(span); });
      }
      y += (Math.max(...lane.spans.map((span) => span[2])) + 1) * ROW + 6;
    }
    svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
    svg.setAttribute("height", y);
    box.replaceChildren(svg);
    back.disabled = view[0] <= 0 && view[1] >= one.seconds;
    said.textContent = current ? told(current) : "";
  };
  const at = (event) => {
    const { left, width } = box.getBoundingClientRect(), edge = width < 600 ? 0 : 96;
    return view[0] + Math.max(0, (event.clientX - left - edge) / (width - edge)) * (view[1] - view[0]);
  };
  // A stroke sideways is the new width; a click on a span is its own.
  brush(box, at, () => {}, zoom);
  box.addEventListener("dblclick", whole);
  box.addEventListener("keydown", (event) => {
    const all = spans(), i = all.indexOf(current);
    const to = { ArrowRight: Math.min(i + 1, all.length - 1), ArrowDown: Math.min(i + 1, all.length - 1), ArrowLeft: Math.max(i - 1, 0), ArrowUp: Math.max(i - 1, 0), Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) {
      current = all[to];
      if (current[0] + current[1] < view[0] || current[0] > view[1]) view = [0, one.seconds];
      draw();
    } else if (["Enter", " "].includes(event.key) && current) zoom(current[0], current[0] + current[1]);
    else if (event.key === "Escape") whole();
    else return;
    event.preventDefault();
  });
  back.addEventListener("click", whole);
  buttons.forEach((button, i) => button.addEventListener("click", () => {
    one = data.waterfall[i];
    buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    whole();
  }));
  draw();
  return draw;
};
