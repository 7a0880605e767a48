// What the pods of a job use: a line for each with its last values; opened, its charts over time.
import { element, number, style } from "./format.js";
import { makePlot } from "./plot.js";
import { makeSamples } from "./samples.js";

const EVERY_MS = 10000, PER_PAGE = 32, MAX_PODS = 128;
const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const LABELS = { step_work: "own work in a step", cpu: "CPU", memory: "memory", disk_read: "disk read", disk_written: "disk written", network_received: "network received", network_sent: "network sent", host_network_received: "machine's network received", host_network_sent: "machine's network sent" };
const bytes = (value) => { const [size, letter] = UNITS.find(([size]) => value >= size) ?? UNITS.at(-1); return `${number(value / size)} ${letter}B`; };
const KINDS = [["_seconds", (value) => (value < 1 ? `${number(1000 * value)} ms` : `${number(value)} s`)], ["_bytes_per_s", (value) => `${bytes(value)}/s`], ["_bytes", bytes], ["_percent", (value) => `${number(value)} %`], ["_watts", (value) => `${number(value)} W`], ["_celsius", (value) => `${number(value)} °C`]];

// "system/device_0_memory_bytes" -> {label: "device 0 memory", show: bytes}
function describe(name) {
  const plain = name.slice("system/".length), [ending, show] = KINDS.find(([ending]) => plain.endsWith(ending)) ?? ["", number];
  const stem = plain.slice(0, plain.length - ending.length);
  return { label: LABELS[stem] ?? stem.replaceAll("_", " "), show };
}
// In the line of a closed pod: what says most, devices first.
const isMain = (name) => /_(percent|memory_bytes|work_seconds)$|\/memory_bytes$/.test(name);
const order = (name) => (name.includes("/device_") ? 0 : name.includes("cpu") ? 1 : name.includes("/memory") ? 2 : 3);

function makePod(jobId, rank) {
  const line = element("span", { class: "soft" }), charts = element("div", { class: "charts even" });
  const node = element("details", {}, element("summary", {}, element("b", {}, `rank ${rank}`), " ", line), charts), samples = makeSamples(jobId, rank), plots = new Map();
  let names = [];
  async function draw() {
    if (!node.open || !names.length || !window.Chart) return;
    try { await samples.read(names, null); } catch { return; } // unavailable: at the next look
    const starts = names.map((name) => samples.curves.get(name)?.steps[0]).filter(Number.isFinite), first = Math.min(...starts);
    for (const name of names) {
      const curve = samples.curves.get(name), { label, show } = describe(name);
      if (!curve?.steps.length) continue;
      if (!plots.has(name)) {
        const last = element("b"), box = element("div", { class: "plot" });
        charts.append(element("figure", {}, element("figcaption", {}, element("span", {}, label), last), box));
        plots.set(name, { last, plot: makePlot(box, label, () => {}) });
      }
      const points = (values) => values.map((y, index) => ({ x: curve.steps[index] - first, y: y ?? NaN })), { last, plot } = plots.get(name);
      last.textContent = show(curve.values.at(-1));
      const band = curve.lows && { low: points(curve.lows), high: points(curve.highs) };
      plot.show([{ label, color: style("--series-1"), points: points(curve.values), notFinite: [], ...band }], { axis: "time", smoothing: 0, isLog: false, range: null, marks: [], text: show });
    }
  }
  node.addEventListener("toggle", draw);
  return { node, show(series) {
    const sorted = [...series].sort((a, b) => order(a.name) - order(b.name) || a.name.localeCompare(b.name, "en", { numeric: true }));
    names = sorted.map(({ name }) => name).slice(0, 50);
    line.textContent = sorted.filter(({ name }) => isMain(name)).slice(0, 10).map(({ name, last_value }) => `${describe(name).label} ${describe(name).show(last_value)}`).join(" · ");
    draw();
  } };
}

export function makeSystem(panel) {
  const id = panel.dataset.id, list = panel.querySelector('[data-part="pods"]'), more = panel.querySelector('[data-part="more"]'), pods = new Map();
  let limit = PER_PAGE, at = -Infinity;
  async function read() {
    if (performance.now() - at < EVERY_MS) return;
    at = performance.now();
    try {
      const answer = await fetch(`/v1/jobs/${id}/system?limit=${limit}`);
      if (!answer.ok) return;
      const { ranks, next } = await answer.json();
      for (const { rank, series } of ranks) {
        if (!pods.has(rank)) { pods.set(rank, makePod(id, rank)); list.append(pods.get(rank).node); }
        pods.get(rank).show(series);
      }
      panel.hidden = !pods.size;
      more.hidden = next === null || limit >= MAX_PODS;
    } catch { /* unavailable: at the next look */ }
  }
  more.addEventListener("click", () => { limit = Math.min(MAX_PODS, limit + PER_PAGE); at = -Infinity; read(); });
  return read;
}
