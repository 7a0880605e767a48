// A panel of charts: chosen series of one job or of several, over each other, by step or by time.
//
// In: the panel's markup (charts.html) and the jobs to draw: [{id, label}]. Out: {read, restart}.
import { element, exact, number, style } from "./format.js";
import { makePlot } from "./plot.js";
import { makeSamples, readNames } from "./samples.js";

const SHOWN_AT_FIRST = 6, MAX_SHOWN = 50, COLORS = 8, NAMES_EVERY_MS = 15000;
const isLoss = (name) => /(^|[^a-z])loss($|[^a-z])/i.test(name);
const colorOf = (index) => style(`--series-${1 + (index % COLORS)}`);

// The judged metric, then losses, then the rest by name; those of groups ("layer/3") last.
export function ordered(names, metric) {
  const rank = (name) => (name === metric ? 0 : name === "loss" ? 1 : isLoss(name) ? 2 : name.includes("/") ? 4 : 3);
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b, "en", { numeric: true }));
}

export function makeCurves(panel, jobs) {
  const find = (name) => panel.querySelector(`[data-part="${name}"]`);
  const charts = find("charts"), empty = find("empty"), picker = find("picker"), metric = panel.dataset.metric;
  const controls = { axis: find("axis"), smoothing: find("smoothing"), log: find("log"), reset: find("reset") };
  let runs = [];
  const figures = new Map(), known = new Map();
  let chosen = null, range = null, isBusy = false, isPending = false, isAvailable = true, namesAt = -Infinity;

  // The picker: every series of any job, with its last value.
  function choose(names) {
    chosen = new Set(names.slice(0, MAX_SHOWN));
    find("count").textContent = `${chosen.size} of ${known.size}`;
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
  find("none").addEventListener("click", () => { choose([]); offer(); });
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

  // What plot.js draws of one series of one run; null where there is nothing.
  function line(run, name) {
    const curve = run.samples.curves.get(name), isTime = controls.axis.value === "time";
    if (!curve?.steps.length) return null;
    const x = (index) => (isTime ? run.samples.secondsAt(curve.steps[index]) : curve.steps[index]);
    const point = (y, index) => ({ x: x(index), y: y === null || (controls.log.checked && y <= 0) ? NaN : y });
    return {
      label: runs.length > 1 ? run.label : name, color: colorOf(run.index), points: curve.values.map(point), notFinite: isTime ? [] : curve.notFinite,
      ...(curve.lows && { low: curve.lows.map(point), high: curve.highs.map(point) }),
    };
  }
  function marks() {
    if (runs.length > 1 || controls.axis.value === "time") return [];
    const [, ...later] = runs[0].samples.attempts;
    return later.map(({ attempt, first_step }) => ({ x: first_step, text: `attempt ${attempt}` }));
  }
  function draw() {
    const options = { axis: controls.axis.value, smoothing: Number(controls.smoothing.value), isLog: controls.log.checked, range, marks: marks() };
    controls.reset.disabled = range === null;
    for (const [name, figure] of figures) {
      const lines = runs.filter((run) => run.isShown).map((run) => line(run, name)).filter(Boolean);
      figure.node.hidden = !lines.length;
      if (runs.length === 1 && lines.length && range === null) {
        const curve = runs[0].samples.curves.get(name);
        figure.last.textContent = `${number(curve.values.at(-1) ?? "nan")} at step ${exact(curve.steps.at(-1))}`;
      }
      if (!window.Chart) continue;
      figure.plot ??= makePlot(figure.box, name, zoomed);
      figure.plot.show(lines, options);
    }
    const isAny = [...figures.values()].some((figure) => !figure.node.hidden);
    empty.hidden = isAny && window.Chart !== undefined && isAvailable;
    empty.textContent = !isAvailable ? "Metrics are unavailable at the moment." : isAny ? "This server has no chart library."
      : known.size ? "No series is chosen." : panel.dataset.isLive === "no" ? "No metrics were logged." : "No metrics logged yet.";
  }

  // Zoom: one range of x for all charts. By step, the range is read again in full detail.
  function zoomed(next) {
    const isStep = controls.axis.value === "step";
    range = next && isStep ? [Math.max(0, Math.floor(next[0])), Math.max(1, Math.ceil(next[1]))] : next;
    draw();
    if (isStep) read();
  }
  function extent() {
    const ends = runs.flatMap((run) => [...figures.keys()].map((name) => line(run, name)?.points)).filter(Boolean).flatMap((points) => [points[0].x, points.at(-1).x]);
    return ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
  }
  const moves = { in: [0.5, 0], out: [2, 0], left: [1, -0.5], right: [1, 0.5] };
  panel.addEventListener("click", (event) => {
    const wanted = moves[event.target.closest("[data-move]")?.dataset.move];
    if (!wanted) return;
    const [low, high] = range ?? extent(), width = (high - low) * wanted[0], middle = (low + high) / 2 + wanted[1] * (high - low);
    zoomed([middle - width / 2, middle + width / 2]);
  });
  controls.reset.addEventListener("click", () => zoomed(null));
  controls.axis.addEventListener("change", () => { range = null; read(); });
  for (const control of [controls.smoothing, controls.log]) control.addEventListener("input", draw);

  // The legend of several jobs; a click hides one.
  function describe() {
    find("legend").replaceChildren(...(runs.length < 2 ? [] : runs).map((run) => {
      const swatch = element("i"), button = element("button", { type: "button", class: "key", "aria-pressed": String(run.isShown), title: run.id }, swatch, run.label);
      swatch.style.background = colorOf(run.index);
      button.addEventListener("click", () => { run.isShown = !run.isShown; button.setAttribute("aria-pressed", String(run.isShown)); draw(); });
      return element("li", {}, button);
    }));
  }

  async function readAll() {
    if (performance.now() - namesAt > NAMES_EVERY_MS || known.size === 0) {
      let numLeft = 0;
      for (const run of runs) {
        const { found, numLeftOut } = await readNames(run.id);
        for (const one of found) known.set(one.name, runs.length > 1 ? "" : number(one.last_value));
        numLeft += numLeftOut;
      }
      find("left-out").textContent = numLeft ? `${exact(numLeft)} samples were left out: of too many series, or too many a second. The alerts say which.` : "";
      namesAt = performance.now();
      offer();
    }
    const ofSteps = controls.axis.value === "step" ? range : null;
    if (chosen !== null) await Promise.all(runs.map((run) => run.samples.read([...chosen], ofSteps)));
    if (controls.axis.value === "time") await Promise.all(runs.map((run) => run.samples.readTimes()));
  }
  async function read() {
    if (isBusy) { isPending = true; return; }
    isBusy = true;
    try { await readAll(); isAvailable = true; } catch { isAvailable = false; } finally { isBusy = false; }
    draw();
    if (isPending) { isPending = false; read(); }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const figure of figures.values()) { figure.plot?.destroy(); figure.plot = null; }
    describe();
    draw();
  });
  // Other jobs in the place of these; what was read of those that stay is kept.
  function setJobs(next) {
    const old = new Map(runs.map((run) => [run.id, run]));
    runs = next.map((job, index) => ({ samples: makeSamples(job.id), isShown: true, ...old.get(job.id), ...job, index }));
    namesAt = -Infinity;
    describe();
  }
  setJobs(jobs);
  return { read, setJobs, restart: () => { namesAt = -Infinity; for (const run of runs) run.samples.restart(); read(); } };
}
