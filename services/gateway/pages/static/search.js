// The page of a study: how it searches. Running trials against the rungs' thresholds, the Pareto front,
// cost against quality, lineage. The server gives the points; what they say is also in its tables.
import { exact, number } from "./format.js";
import { listen } from "./live.js";
import { axis, dots, line, scatter } from "./scatter.js";

const root = document.getElementById("study"), source = document.getElementById("drawings");
const charts = [];
// Also a hundredth of a cent, which `tick` would write as a power of ten.
const dollars = (amount) => amount.toLocaleString("en", { maximumSignificantDigits: 6, maximumFractionDigits: 12 });

function groups(rows, key) {
  const found = new Map();
  for (const row of rows) found.set(row[key], [...(found.get(row[key]) ?? []), row]);
  return found;
}

// One line per trial that goes on, over its rungs, and the newest threshold of each rung.
function drawRunning(box, { rungs, live }, metric) {
  const known = rungs.filter(([, threshold]) => threshold !== null);
  box.hidden = !known.length && !live.length;
  if (box.hidden) return null;
  const lines = [...groups(live, 0)].map(([of, rows]) => line("", rows.map(([, step, value]) => ({ x: step, y: value, text: `trial ${of}: ${exact(value)} at step ${exact(step)}` })), "--series-1", { borderWidth: 1.2, pointRadius: 2.5 }));
  if (lines.length) lines[0].label = "trials that go on";
  const threshold = line("threshold", known.map(([step, value]) => ({ x: step, y: value, text: `threshold ${exact(value)} at step ${exact(step)}` })), "--series-2", { borderDash: [6, 4], pointRadius: 4, pointStyle: "rectRot" });
  const label = `${metric} of ${lines.length} trials that go on, and the threshold of ${known.length} rungs`;
  return scatter(box, label, [...lines, threshold], { title: "step" }, { title: metric });
}

function drawFront(box, { points, front, goals }) {
  const on = new Set(front), [first, second] = goals, of = ([trial, y, , x]) => ({ x, y, text: `trial ${trial}: ${first.name} ${exact(y)}, ${second.name} ${exact(x)}` });
  const whole = points.filter((point) => point.length > 3), best = whole.filter(([trial]) => on.has(trial)).sort((a, b) => a[3] - b[3]);
  const sets = [dots("trials", whole.filter(([trial]) => !on.has(trial)).map(of), "--idle", 3), line("front", best.map(of), "--series-2", { stepped: goals.length === 2 && (second.goal === "maximize" ? "after" : "before"), borderWidth: goals.length === 2 ? 1.5 : 0, pointRadius: 5 })];
  return scatter(box, `${first.name} against ${second.name} of ${whole.length} trials; ${best.length} are on the front`, sets, { title: second.name }, { title: first.name });
}

function drawCost(box, { points, stopped }, metric) {
  const paid = (rows, what) => rows.filter((row) => row[2] > 0).map(([of, y, x]) => ({ x, y, text: `trial ${of}${what}: ${metric} ${exact(y)} for $${number(x)}` }));
  const whole = paid(points, ""), early = paid(stopped, ", stopped early"), num = whole.length + early.length;
  document.getElementById("cost-card").hidden = !num;
  if (!num) return null;
  const sets = [dots("trials with a value", whole, "--series-1"), dots("stopped early, at their last rung", early, "--idle", 3)];
  return scatter(box, `${metric} against the cost of ${num} trials; ${early.length} were stopped early`, sets, { title: "dollars", beginAtZero: true, ticks: { ...axis("").ticks, callback: dollars } }, { title: metric });
}

// A point per trial; a line to the one that it continued from.
function drawLineage(box, { lineage }, metric) {
  const places = new Map(lineage.flatMap(([of, y, parent, before]) => [[parent, before], [of, y]]).filter(([, y]) => y !== null));
  const point = (of) => ({ x: of, y: places.get(of), text: `trial ${of}: ${metric} ${exact(places.get(of))}` });
  const ties = lineage.filter(([of, , parent]) => places.has(of) && places.has(parent));
  const lines = ties.map(([of, , parent]) => line("", [point(parent), point(of)], "--idle", { borderWidth: 1.2 }));
  return scatter(box, `${ties.length} trials that continue from another one's checkpoint`, [dots("", [...places.keys()].map(point), "--series-1", 5), ...lines], { title: "trial", ticks: { precision: 0 } }, { title: metric });
}

function draw() {
  while (charts.length) charts.pop()?.destroy();
  const data = JSON.parse(source.dataset.search), { metric } = root.dataset;
  for (const [id, make] of [["running", drawRunning], ["front", drawFront], ["cost", drawCost], ["lineage", drawLineage]]) {
    const box = document.getElementById(id);
    if (box && data.points) charts.push(make(box, data, metric));
  }
}

if (root && window.Chart) {
  listen((type) => { if (type === "renewed") draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
