// Shows the states that the server sends. Every text goes into textContent; nothing of a run becomes markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const PHASES = { startup: "start-up" };
  const phaseWords = (name) => PHASES[name] || name.replaceAll("_", " ");
  const share = (v) => (v > 0 && v < 0.005 ? "<1 %" : `${Math.round(v * 100)} %`);
  const rate = (v) => (v >= 100 ? Math.round(v).toLocaleString("en-US") : digits(v));
  const known = (v) => v !== null && v !== undefined;
  const count = (v) => v.toLocaleString("en-US");
  const drawn = new Map(), shown = new Map();

  // Runs only where its part of the state is another than last time: text that is being selected stays.
  const when = (key, part, render) => {
    const text = JSON.stringify(part);
    if (shown.get(key) === text) return;
    shown.set(key, text);
    render(part);
  };
  const cell = (value, numeric, tag = "td") => html(tag, numeric ? "num" : "", known(value) ? String(value) : "–");
  const table = (id, head, rows, numeric) => {
    const section = $(id);
    section.hidden = !rows.length;
    if (!rows.length) return;
    const top = html("tr"), thead = html("thead"), body = html("tbody");
    top.append(...head.map((title, i) => cell(title, numeric.includes(i), "th")));
    thead.append(top);
    for (const row of rows) {
      const line = html("tr");
      line.append(...row.map((value, i) => cell(value, numeric.includes(i))));
      body.append(line);
    }
    section.querySelector("table").replaceChildren(thead, body);
  };
  const list = (id, lines) => {
    $(id).hidden = !lines.length;
    $(id).querySelector("ul").replaceChildren(...lines.map((line) => html("li", "", line)));
  };
  const of = (value, whole, words) => (known(value) ? (known(whole) ? `${words(value)} of ${words(whole)}` : words(value)) : null);

  const figures = (s) => {
    const { speed, machine } = s, found = [];
    const add = (name, value, note) => { if (known(value)) found.push([name, value, note || ""]); };
    const steps = (s.steps.exact ? "" : "about ") + count(s.steps.count);
    add("steps", steps, s.steps.quiet_s >= 5 ? `the last sign ${duration(Math.round(s.steps.quiet_s))} ago` : "");
    if (speed.samples_per_s) add("samples/s", rate(speed.samples_per_s), `${rate(speed.steps_per_s)} steps/s`);
    else if (speed.steps_per_s) add("steps/s", rate(speed.steps_per_s), duration(1 / speed.steps_per_s) + "/step");
    for (const gpu of s.gpus.slice(0, 4)) {
      const notes = [of(gpu.memory_bytes, gpu.memory_total_bytes, size), known(gpu.power_w) ? `${Math.round(gpu.power_w)} W` : null, known(gpu.temperature_c) ? `${gpu.temperature_c} °C` : null];
      add(`GPU ${gpu.index} busy`, known(gpu.util_ratio) ? share(gpu.util_ratio) : "–", notes.filter(known).join(", "));
    }
    if (known(machine.cpu_cores)) add("cores busy", plain(machine.cpu_cores), `of ${plain(machine.cpu_count)}`);
    const used = s.processes.reduce((sum, one) => sum + (one.memory_bytes || 0), 0);
    if (used) add("memory of the run", size(used), machine.limit_bytes ? `limit ${size(machine.limit_bytes)}` : machine.memory_available_bytes ? `${size(machine.memory_available_bytes)} available` : "");
    if (known(machine.disk_read_bytes_per_s)) add("disk read", `${size(machine.disk_read_bytes_per_s)}/s`, `written ${size(machine.disk_write_bytes_per_s)}/s, busy ${share(machine.disk_busy_ratio || 0)}`);
    $("figures").replaceChildren(...found.map(([name, value, note]) => {
      const box = html("div");
      box.append(html("dt", "", name), html("dd", "", value), html("dd", "sub", note));
      return box;
    }));
  };

  const verdict = (d, steps) => {
    const split = d ? d.verdict.match(/^(.*?[^.]\.)\s+(?=[A-Z])(.*)$/s) : null;
    $("verdict").textContent = d ? (split ? split[1] : d.verdict) : steps ? "Looking for what holds it back …" : "No step was seen yet.";
    $("more").textContent = split ? split[2] : "";
  };
  const phases = (d) => {
    const found = d ? d.phases : [];
    $("time").hidden = !found.length;
    const bar = [], keys = [];
    for (const one of found) {
      const part = html("span"), key = html("li"), mark = html("i", "swatch");
      part.style.flexGrow = one.share;
      for (const node of [part, mark]) node.style.setProperty("--c", `var(--p-${one.name.replace(/[^a-z_]/g, "")})`);
      if (one.share >= 0.12) part.append(html("b", "", `${phaseWords(one.name)} ${share(one.share)}`));
      key.append(mark, phaseWords(one.name), html("b", "", share(one.share)), html("small", "", `${duration(one.s_per_step)}/step`));
      bar.push(part);
      keys.push(key);
    }
    $("bar").replaceChildren(...bar);
    $("bar").setAttribute("aria-label", found.map((one) => `${phaseWords(one.name)} ${share(one.share)}`).join(", "));
    $("phases").replaceChildren(...keys);
  };
  const left = (r) => {
    $("left").hidden = !r;
    if (!r) return;
    $("done").style.width = `${r.done * 100}%`;
    const without = known(r.left_without_first_s) ? `; ${duration(r.left_without_first_s)} with finding 1 removed` : "";
    $("left-words").textContent = `${r.of}: ${share(r.done)} done, ${duration(r.left_s)} left at this rate${without}.`;
  };
  const cards = (found) => {
    $("findings").hidden = !found.length;
    $("cards").replaceChildren(...found.map((one, i) => {
      const card = html("article", `card ${one.severity.replace(/[^a-z]/g, "")}`), head = html("header"), title = html("h3");
      title.append(html("span", "rank", String(i + 1)), html("code", "", one.id));
      const cost = html("span", "cost");
      if (known(one.share) && one.share > 0) cost.append(html("strong", "", `${duration(one.s_per_step)}/step`), html("span", "share", share(one.share)));
      cost.append(html("span", "severity", one.severity));
      head.append(title, cost);
      const advice = html("p", "advice");
      advice.append(html("span", "do", "Do"), one.advice);
      card.append(head, html("p", "message", one.message), advice);
      if (one.where) card.append(html("p", "place", one.where));
      return card;
    }));
  };
  const charts = (specs, wall_s) => {
    $("charts").hidden = !specs.length;
    for (const spec of specs) {
      let plot = drawn.get(spec.id);
      if (!plot) {
        const figure = html("figure", `chart${spec.id === "throughput" ? " wide" : ""}`), caption = html("figcaption", "", spec.title), box = html("div", "plot");
        caption.append(html("span", "unit", spec.unit_words));
        box.id = `chart-${spec.id}`;
        box.tabIndex = 0;
        figure.append(caption, box);
        $("plots").append(figure);
        plot = new Plot(spec, wall_s);
        plots.push(plot);
        drawn.set(spec.id, plot);
      } else plot.take(spec, wall_s);
      box_label(spec);
      if (known(plot.current)) plot.show(plot.current);
    }
  };
  const box_label = (spec) => $(`chart-${spec.id}`).setAttribute("aria-label", spec.summary);
  const gpus = (found) => table("gpus", ["GPU", "busy", "memory", "power", "temperature", "clock", "link"], found.map((g) => [
    `${g.index} ${g.name}`, known(g.util_ratio) ? share(g.util_ratio) : null, of(g.memory_bytes, g.memory_total_bytes, size),
    of(g.power_w, g.power_limit_w, (v) => `${Math.round(v)} W`), known(g.temperature_c) ? `${g.temperature_c} °C` : null, known(g.sm_clock_mhz) ? `${Math.round(g.sm_clock_mhz)} MHz` : null, g.link || null,
  ]), [1, 2, 3, 4, 5]);
  const speedOf = (v) => (known(v) ? `${size(v)}/s` : null);
  const processes = (found) => table("processes", ["process", "pid", "cores", "memory", "threads", "read from disk", "read in all"], found.map((p) => [
    p.what, p.pid, known(p.cpu_cores) ? p.cpu_cores.toFixed(2) : null, known(p.memory_bytes) ? size(p.memory_bytes) : null, p.threads, speedOf(p.read_per_s), speedOf(p.read_any_per_s),
  ]), [1, 2, 3, 4, 5, 6]);
  const ranks = ([found, slowest]) => table("ranks", ["rank", "steps", "per step", "own work"], found.map((r) => [
    `rank ${r.rank}${r.rank === slowest ? " · holds up the others" : ""}`, count(r.num_steps), known(r.s_per_step) ? duration(r.s_per_step) : null, known(r.own_s_per_step) ? duration(r.own_s_per_step) : null,
  ]), [1, 2, 3]);
  const loaders = ([found, caches]) => table("loaders", ["what", "settings", "workers busy", "ready when asked", "hits"], [
    ...found.map((l) => [`${l.role}: ${l.dataset}`, l.settings, known(l.busy_ratio) ? share(l.busy_ratio) : null, known(l.ready) ? l.ready.toFixed(1) : null, null]),
    ...caches.map((c) => [c.name, null, null, null, c.reads ? `${share(c.hits / c.reads)} of ${count(c.reads)}` : null]),
  ], [2, 3, 4]);
  const memory = (m) => {
    const peaks = m ? [["main_peak_bytes", "training processes at their peak"], ["workers_peak_bytes", "workers at their peak"], ["device_peak_bytes", "device at its peak"], ["limit_bytes", "limit of the container"], ["ram_bytes", "memory of the machine"]].filter(([key]) => m[key]).map(([key, name]) => `${name}: ${size(m[key])}`) : [];
    list("memory", m ? [...peaks, ...m.fits, ...m.advice] : []);
  };

  const STATUS = { failed: "outside", passed: "within", "not-measured": "not measured" };
  const expected = (found) => {
    table("expected", ["", "what", "expected", "is"], found.map((e) => [STATUS[e.status], e.name, typeof e.limit === "string" ? e.limit : null, e.words]), []);
    document.querySelectorAll("#expected tbody tr").forEach((row, i) => { row.dataset.status = found[i].status; });
  };
  const alerts = (found) => list("alerts", found.map((one) => `${new Date(one.unix_s * 1000).toTimeString().slice(0, 5)}  ${one.words}`));

  const show = (s) => {
    if (s.error) { $("state").dataset.state = "lost"; $("state").textContent = s.error; return; }
    const d = s.diagnosis;
    document.title = `${s.state === "running" ? "" : `${s.state}: `}${s.run.name} · hotloop`;
    $("name").textContent = s.run.name;
    $("command").textContent = s.run.command;
    $("state").dataset.state = s.state;
    $("state").className = s.exit_code ? "bad" : "";
    $("state").textContent = s.state_words;
    const of_what = d ? (d.of_all ? "" : `Of the last ${count(d.num_steps)} steps. `) : "";
    $("age").textContent = s.diagnosis_failed || (d ? `${of_what}${s.state === "finished" ? "Diagnosis of the finished run." : `Diagnosed ${d.age_s < 1 ? "just now" : `${duration(Math.round(d.age_s))} ago`}.`}` : "");
    when("verdict", [d && d.verdict, s.steps.count > 0], () => verdict(d, s.steps.count));
    when("alerts", s.alerts, alerts);
    when("expected", d ? d.expected : [], expected);
    when("phases", d && d.phases, () => phases(d));
    when("left", s.remaining, left);
    when("figures", [s.steps, s.speed.steps_per_s, s.speed.samples_per_s, s.gpus, s.machine, s.processes], () => figures(s));
    charts(s.charts, s.elapsed_s);
    const changes = s.speed.changes.slice(-3).map((c) => `${rate(c.before)} → ${rate(c.after)} steps/s at ${duration(c.t_s)}`);
    $("changes").textContent = changes.length ? ` A vertical line marks a change of the throughput: ${changes.join(", ")}.` : "";
    when("cards", d ? d.findings : [], cards);
    when("gpus", s.gpus, gpus);
    when("processes", s.processes, processes);
    when("ranks", d && d.ranks.length > 1 ? [d.ranks, d.slowest_rank] : [[], null], ranks);
    when("loaders", [d ? d.loaders : [], s.caches], loaders);
    when("memory", d && d.memory, memory);
    when("warnings", [...new Set([...s.warnings, ...(d ? d.warnings : [])])], (lines) => list("warnings", lines));
    $("foot").textContent = `${s.run.folder} · this page only looks on`;
    document.documentElement.dataset.states = String(Number(document.documentElement.dataset.states || 0) + 1);
  };

  const source = new EventSource("events");
  source.onmessage = (event) => {
    const state = JSON.parse(event.data);
    show(state);
    if (state.state === "finished" && state.diagnosis && state.last) source.close();
  };
  source.onerror = () => {
    $("state").dataset.state = "lost";
    $("state").textContent = "hotloop watch does not answer";
  };
  let pending = 0;
  addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(() => plots.forEach((plot) => plot.draw())); });
})();
