"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const button of document.querySelectorAll("[data-copy]"))
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    });

  for (const spec of data.charts) plots.push(new Plot(spec, data.wall_s));

  // -- the flame graph: a box for each function, its callees below; phases are the first row
  const flame = () => {
    const section = document.getElementById("flame");
    if (!section || !data.flame) return () => {};
    const [box, find, back, said] = [".flame", "input", "button", "output"].map((name) => section.querySelector(name));
    const ROW = 19, boxes = [];
    const lay = (node, depth, start, phase) => {
      const own = { node, depth, start, phase: node.phase || phase };
      boxes.push(own);
      let at = start;
      for (const child of node.children || []) { lay(child, depth + 1, at, own.phase); at += child.s; }
    };
    lay(data.flame, 0, 0, "");
    let zoom = boxes[0];
    const matches = (node, wanted) => `${node.name} ${node.file || ""}`.toLowerCase().includes(wanted);
    const under = (node, wanted) => (matches(node, wanted) ? node.s : (node.children || []).reduce((sum, child) => sum + under(child, wanted), 0));
    let current = zoom;
    const told = (node) => `${node.name}${node.file ? `\n${node.file}${node.line ? `:${node.line}` : ""}` : ""}\n${duration(node.s)}, ${trimmed((node.s / data.flame.s) * 100)} % of what was sampled`;
    const draw = () => {
      const wanted = find.value.trim().toLowerCase(), width = Math.max(160, box.clientWidth), end = zoom.start + zoom.node.s;
      const shown = boxes.filter((one) => (one.depth < zoom.depth ? one.start <= zoom.start && one.start + one.node.s >= end - 1e-9 : one.start >= zoom.start - 1e-9 && one.start < end - 1e-9));
      const height = (Math.max(...shown.map((one) => one.depth)) + 1) * ROW;
      const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
      if (!shown.includes(current)) current = zoom;
      for (const one of shown) {
        const { node } = one, left = Math.max(0, (one.start - zoom.start) / zoom.node.s) * width;
        const wide = one.depth < zoom.depth ? width : (node.s / zoom.node.s) * width;
        if (wide < 0.7) continue;
        const kind = wanted && matches(node, wanted) ? "hit" : one.depth < zoom.depth || !one.depth ? "above" : "";
        const group = element("g", { class: one === current ? `${kind} current` : kind }, svg);
        element("rect", { x: left, y: one.depth * ROW, width: Math.max(0.5, wide - 0.6), height: ROW - 1.5, rx: 2, style: `fill:${one.phase ? `var(--p-${one.phase})` : "var(--edge)"}` }, group);
        const fits = Math.floor((wide - 8) / 6.3);
        if (fits > 2) element("text", { x: left + 4, y: one.depth * ROW + 13 }, group).textContent = node.name.length > fits ? `${node.name.slice(0, fits - 1)}…` : node.name;
        element("title", {}, group).textContent = told(node);
        group.addEventListener("click", () => { zoom = current = one; draw(); });
      }
      box.replaceChildren(svg);
      back.disabled = zoom === boxes[0];
      said.textContent = wanted ? `${trimmed((under(zoom.node, wanted) / zoom.node.s) * 100)} % of the width` : "";
    };
    find.addEventListener("input", draw);
    back.addEventListener("click", () => { zoom = current = boxes[0]; draw(); });
    // Arrows go to callers, callees and neighbours; what is reached is said to a screen reader.
    box.addEventListener("keydown", (event) => {
      const around = boxes.find((one) => (one.node.children || []).includes(current.node));
      const beside = around ? around.node.children : [current.node], at = beside.indexOf(current.node);
      const to = {
        ArrowUp: around && around.node, ArrowDown: (current.node.children || [])[0], Escape: around && around.node,
        ArrowLeft: beside[at - 1], ArrowRight: beside[at + 1], Home: boxes[0].node, Enter: current.node, " ": current.node,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      current = boxes.find((one) => one.node === to);
      if (["Enter", " ", "Escape"].includes(event.key) || current.depth < zoom.depth || current.start < zoom.start - 1e-9 || current.start >= zoom.start + zoom.node.s - 1e-9) zoom = current;
      draw();
      said.textContent = told(current.node).replaceAll("\n", ", ");
    });
    draw();
    return draw;
  };
  // -- the filter of lines: those below 1 % are opened with it
  for (const find of document.querySelectorAll(".filter")) {
    const scope = find.closest("section, article"), rows = [...scope.querySelectorAll(".lines > details")], more = scope.querySelector(".lines + details");
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.querySelector(".what").textContent.toLowerCase().includes(wanted);
      if (more) more.open = Boolean(wanted);
      find.parentElement.querySelector("output").textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    });
  }
  const others = [flame(), histogram(data), waterfall(data)];
  let pending = 0;
  addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(() => { plots.forEach((plot) => plot.draw()); others.forEach((draw) => draw()); }); });

  // -- theme: automatic, light, dark
  const button = document.getElementById("theme");
  const names = { auto: "automatic", light: "light", dark: "dark" };
  const remembered = () => { try { return localStorage.getItem("hotloop-theme") || "auto"; } catch { return "auto"; } };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Colour theme: ${names[theme]}`);
  };
  let theme = names[remembered()] ? remembered() : "auto";
  apply(theme);
  button.addEventListener("click", () => {
    theme = { auto: "dark", dark: "light", light: "auto" }[theme];
    try { localStorage.setItem("hotloop-theme", theme); } catch { /* opened from a file without storage */ }
    apply(theme);
  });
  document.documentElement.dataset.ready = String(plots.length);
})();
