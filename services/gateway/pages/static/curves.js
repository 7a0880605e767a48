// A panel of charts: chosen series of one job or of several, over each other, by step or by time.
//
// In: the panel's markup (parts.html, `curves`) with data-metric, data-losses and data-marks, and the
// jobs to draw: [{id, label}]. One request per job brings all series that are shown.
import { element, exact, number, style } from "./format.js";
import { makePlot } from "./plot.js";

const SHOWN_AT_FIRST = 6, MAX_SHOWN = 50, POINTS = 1000, OVERLAP = 300, COLORS = 8;
const isLoss = (name) => /(^|[^a-z])loss($|[^a-z])/i.test(name);
const colorOf = (index) => style(`--series-${1 + (index % COLORS)}`);

// The judged metric, then losses, then the rest by name; those of groups ("layer/3") last.
export function ordered(names, metric) {
  const rank = (name) => (name === metric ? 0 : name === "loss" ? 1 : isLoss(name) ? 2 : name.includes("/") ? 4 : 3);
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
}

export function makeCurves(panel, jobs) {
  const find = (name) => panel.querySelector(`[data-part="${name}"]`);
  const charts = find("charts"), empty = find("empty"), picker = find("picker"), legend = find("legend");
  const metric = panel.dataset.metric, marks = JSON.parse(panel.dataset.marks || "[]");
  const controls = { axis: find("axis"), smoothing: find("smoothing"), log: find("log"), reset: find("reset") };
  const runs = jobs.map((job, index) => ({ ...job, index, isShown: true, series: new Map(), from: 0, isStale: true }));
  const figures = new Map(), known = new Map();
  let chosen = null, range = null, isBusy = false, isPending = false, text = "No metrics logged yet.";

  // The picker: every series of any job, with its last value.
  function choose(names) {
    chosen = new Set(names.slice(0, MAX_SHOWN));
    for (const run of runs) run.isStale = true;
    arrange();
    read();
  }
  function offer() {
    const names = ordered(known.keys(), metric), list = find("names");
    if (chosen === null && names.length) choose(names.slice(0, SHOWN_AT_FIRST));
    picker.hidden = names.length < 2;
    find("count").textContent = `${chosen?.size ?? 0} of ${names.length}`;
    if (list.contains(document.activeElement)) return;
    list.replaceChildren(...names.map((name) => element("li", {}, element("label", {},
      element("input", { type: "checkbox", value: name, checked: chosen.has(name) }), element("span", {}, name), element("b", {}, known.get(name))))));
    filter();
  }
  function filter() {
    const wanted = find("filter").value.toLowerCase();
    for (const item of find("names").children) item.hidden = !item.querySelector("input").value.toLowerCase().includes(wanted);
  }
  find("filter").addEventListener("input", filter);
  find("names").addEventListener("change", () => choose([...find("names").querySelectorAll(":checked")].map((box) => box.value)));
  find("none").addEventListener("click", () => { document.activeElement.blur(); choose([]); offer(); });
  picker.addEventListener("keydown", (event) => { if (event.key === "Escape") { picker.open = false; picker.querySelector("summary").focus(); } });

  // One figure per series, in the picker's order.
  function arrange() {
    for (const [name, figure] of figures) if (!chosen.has(name)) { figure.plot?.destroy(); figure.node.remove(); figures.delete(name); }
    for (const name of ordered(chosen, metric)) {
      if (!figures.has(name)) {
        const last = element("b"), box = element("div", { class: "plot" });
        figures.set(name, { node: element("figure", {}, element("figcaption", {}, element("span", {}, name), last), box), last, box, plot: null });
      }
      charts.append(figures.get(name).node);
    }
  }

  function line(run, name) {
    const got = run.series.get(name);
    if (!got) return null;
    const isTime = controls.axis.value === "time", x = (index) => (isTime ? got.times[index] - got.times[0] : got.steps[index]);
    if (isTime && !got.times.length) return null;
    const column = (values) => values.map((y, index) => ({ x: x(index), y: typeof y === "number" && !(controls.log.checked && y <= 0) ? y : NaN }));
    return {
      label: runs.length > 1 ? run.label : name, color: colorOf(run.index), points: column(got.values),
      ...(got.low && { low: column(got.low), high: column(got.high) }),
    };
  }
  function markers() {
    if (runs.length > 1 || controls.axis.value === "time") return [];
    return marks.map(({ attempt, step }) => ({ x: step, text: `attempt ${attempt}` }));
  }
  function draw() {
    const options = { axis: controls.axis.value, smoothing: Number(controls.smoothing.value), isLog: controls.log.checked, range, marks: markers() };
    controls.reset.disabled = range === null;
    for (const [name, figure] of figures) {
      const lines = runs.filter((run) => run.isShown).map((run) => line(run, name)).filter(Boolean);
      figure.node.hidden = !lines.length;
      if (runs.length === 1 && lines.length) {
        const got = runs[0].series.get(name), step = got.steps.at(-1), value = got.values.at(-1);
        figure.last.textContent = step === undefined ? "" : `${number(value)} at step ${exact(step)}`;
      }
      if (!window.Chart) continue;
      figure.plot ??= makePlot(figure.box, name, zoomed);
      figure.plot.show(lines, options);
    }
    const isAny = [...figures.values()].some((figure) => !figure.node.hidden);
    empty.hidden = isAny && window.Chart !== undefined;
    empty.textContent = !isAny ? text : "Charts need JavaScript and the chart library, which this server does not have.";
  }

  // Zoom: one range of x for all charts. By step, the range is read again in full detail.
  function zoomed(next) {
    const isStep = controls.axis.value === "step";
    range = next && isStep ? [Math.max(0, Math.floor(next[0])), Math.max(1, Math.ceil(next[1]))] : next;
    draw();
    if (isStep) { for (const run of runs) run.isStale = true; read(); }
  }
  function extent() {
    const xs = runs.flatMap((run) => [...figures.keys()].map((name) => line(run, name))).filter((one) => one?.points.length).flatMap((one) => [one.points[0].x, one.points.at(-1).x]);
    return xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
  }
  // By buttons: `factor` scales the width, `shift` moves by a part of it.
  function move(factor, shift) {
    const [low, high] = range ?? extent(), width = (high - low) * factor, middle = (low + high) / 2 + shift * (high - low);
    zoomed([middle - width / 2, middle + width / 2]);
  }
  const moves = { in: [0.5, 0], out: [2, 0], left: [1, -0.5], right: [1, 0.5] };
  panel.addEventListener("click", (event) => {
    const wanted = event.target.closest("[data-move]")?.dataset.move;
    if (wanted) move(...moves[wanted]);
  });
  controls.reset.addEventListener("click", () => zoomed(null));
  controls.axis.addEventListener("change", () => zoomed(null));
  for (const control of [controls.smoothing, controls.log]) control.addEventListener("input", draw);

  function describe() {
    if (runs.length < 2) return;
    legend.replaceChildren(...runs.map((run) => {
      const swatch = element("i", {}), button = element("button", { type: "button", class: "key", "aria-pressed": String(run.isShown), title: run.id }, swatch, run.label);
      swatch.style.background = colorOf(run.index);
      button.addEventListener("click", () => { run.isShown = !run.isShown; button.setAttribute("aria-pressed", String(run.isShown)); draw(); });
      return element("li", {}, button);
    }));
  }

  // Reading: the names of all series, then the samples of those that are shown.
  const get = async (path) => { const answer = await fetch(path); return answer.ok ? answer.json() : null; };
  async function readNames() {
    for (const run of runs) {
      const got = await get(`/v1/jobs/${run.id}/series`);
      if (got === null) { text = "Metrics are unavailable at the moment."; continue; }
      text = panel.dataset.isLive === "no" ? "No metrics were logged." : "No metrics logged yet.";
      for (const one of got.series) known.set(one.name, runs.length > 1 ? "" : number(one.last_value));
    }
    offer();
  }
  async function readSamples(run) {
    const isWhole = run.isStale || range !== null, names = [...chosen];
    run.isStale = false;
    const [low, high] = range && controls.axis.value === "step" ? range : [isWhole ? 0 : run.from, null];
    const query = new URLSearchParams({ names: names.join(","), max_points: POINTS, from_step: low, ...(high !== null && { to_step: high }) });
    const got = names.length ? await get(`/v1/jobs/${run.id}/metrics?${query}`) : { series: {} };
    if (got === null) { run.isStale = true; text = "Metrics are unavailable at the moment."; return; }
    for (const [name, fresh] of Object.entries(got.series)) merge(run, name, fresh, isWhole, low);
    if (range) { run.isStale = true; return; }
    // Some steps back: rarer series and late batches arrive after the newest step.
    run.from = Math.max(0, Math.max(0, ...[...run.series.values()].map((one) => one.steps.at(-1) ?? 0)) - OVERLAP);
  }
  function merge(run, name, fresh, isWhole, from) {
    const columns = ["steps", "values", "times", "low", "high"], old = run.series.get(name);
    const num = isWhole || !old ? 0 : old.steps.findIndex((step) => step >= from), kept = num < 0 ? old.steps.length : num;
    const one = {};
    for (const column of columns) if (fresh[column]) one[column] = (kept ? old[column]?.slice(0, kept) ?? [] : []).concat(fresh[column]);
    one.times ??= [];
    run.series.set(name, one);
    if (one.times.length) find("axis-label").hidden = false;
    if (one.steps.length > 3 * POINTS) run.isStale = true;
  }
  async function read() {
    if (isBusy) { isPending = true; return; }
    isBusy = true;
    try {
      await readNames();
      if (chosen !== null) for (const run of runs) await readSamples(run);
    } catch { text = "Metrics are unavailable at the moment."; }
    finally { isBusy = false; }
    draw();
    if (isPending) { isPending = false; read(); }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of figures.values()) { figure.plot?.destroy(); figure.plot = null; }
    describe();
    draw();
  });
  describe();
  return { read, restart: () => { for (const run of runs) run.isStale = true; read(); } };
}
