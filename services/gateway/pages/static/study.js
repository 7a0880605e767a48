// The page of a study: history, parallel coordinates, value against each hyperparameter, curves of the
// chosen trials. All of it is read from the table of trials, which the server renders.
import { makeCurves } from "./curves.js";
import { element, exact, number, style } from "./format.js";
import { listen } from "./live.js";
import { drawParallel } from "./parallel.js";
import { makeSortable } from "./table.js";

const CURVES_AT_FIRST = 5, MAX_CHOSEN = 10, EVERY_MS = 5000;
const root = document.getElementById("study");

function start() {
  const { metric, goal } = root.dataset, space = JSON.parse(root.dataset.space);
  const table = document.getElementById("trials"), panel = document.getElementById("curves"), compare = document.getElementById("compare");
  const isBetter = (a, b) => (goal === "maximize" ? a > b : a < b);
  const plots = [];

  const trialOf = (row) => ({
    number: Number(row.dataset.number), job: row.dataset.job, rank: Number(row.dataset.rank) || null,
    value: row.dataset.value === "" ? null : Number(row.dataset.value), point: JSON.parse(row.dataset.point),
  });
  const trials = () => [...table.querySelectorAll("tbody tr")].map(trialOf);
  const sort = makeSortable(table, (row, column) => {
    const trial = trialOf(row);
    return (column.startsWith("point:") ? trial.point[column.slice(6)] : trial[column]) ?? null;
  });

  // One scatter or line by Chart.js; a click on a point opens the trial.
  function plot(box, label, datasets, x, ticks) {
    const canvas = element("canvas", { role: "img", "aria-label": label });
    box.replaceChildren(canvas);
    const axis = () => ({ ticks: { color: style("--soft"), maxTicksLimit: 7, maxRotation: 0 }, grid: { color: style("--line") }, border: { display: false } });
    plots.push(new Chart(canvas, {
      type: "scatter", data: { datasets },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false,
        onClick: (_, [hit]) => { const job = hit && datasets[hit.datasetIndex].data[hit.index].job; if (job) location.href = `/jobs/${job}`; },
        plugins: {
          legend: { display: datasets.length > 1, labels: { color: style("--soft"), boxWidth: 14, boxHeight: 2 } },
          zoom: { zoom: { drag: { enabled: false } } },
          tooltip: { displayColors: false, callbacks: { label: ({ raw }) => `trial ${raw.number}: ${metric} ${exact(raw.y)}${raw.text ? `, ${raw.text}` : ""}` } },
        },
        scales: {
          x: { ...axis(), ...x, title: { display: true, text: x.title, color: style("--soft") }, ...(ticks && { ticks: { ...axis().ticks, stepSize: 1, callback: (at) => ticks[at] ?? "" } }) },
          y: axis(),
        },
      },
    }));
  }
  const dots = (data, label = metric) => ({ label, data, backgroundColor: style("--series-1"), pointRadius: 4, pointHoverRadius: 6 });

  function drawHistory(done) {
    const inOrder = [...done].sort((a, b) => a.number - b.number), best = [];
    for (const trial of inOrder) if (!best.length || isBetter(trial.value, best.at(-1).y)) best.push({ x: trial.number, y: trial.value, number: trial.number, job: trial.job });
    if (best.length) best.push({ ...best.at(-1), x: inOrder.at(-1).number });
    const line = { label: "best so far", data: best, showLine: true, stepped: true, borderColor: style("--series-2"), backgroundColor: style("--series-2"), borderWidth: 2, pointRadius: 0 };
    const values = inOrder.map((trial) => ({ x: trial.number, y: trial.value, number: trial.number, job: trial.job }));
    plot(document.getElementById("history"), `${metric} by trial; the best is ${best.length ? exact(best.at(-1).y) : "none"}`, [dots(values), line], { title: "trial", ticks: { precision: 0 } });
  }
  function drawValues(done, names) {
    document.getElementById("values").replaceChildren(...names.map((name) => {
      const box = element("div", { class: "plot" }), values = done.map((trial) => trial.point[name]);
      const kinds = values.every((value) => typeof value === "number") ? null : [...new Set(values.map(String))].sort();
      const data = done.map((trial, index) => ({ x: kinds ? kinds.indexOf(String(values[index])) : values[index], y: trial.value, number: trial.number, job: trial.job, text: `${name} ${values[index]}` }));
      const figure = element("figure", {}, element("figcaption", {}, element("span", {}, name)), box);
      queueMicrotask(() => plot(box, `${metric} against ${name}`, [dots(data)], { title: name, type: space[name]?.log ? "logarithmic" : "linear" }, kinds));
      return figure;
    }));
  }
  function drawAll() {
    const done = trials().filter((trial) => trial.value !== null), names = Object.keys(trials()[0]?.point ?? {}).sort();
    while (plots.length) plots.pop().destroy();
    if (window.Chart && done.length) { drawHistory(done); drawValues(done, names); }
    document.getElementById("parallel-card").hidden = !done.length;
    const axes = names.map((name) => ({ name, isLog: space[name]?.log, values: done.map((trial) => trial.point[name]) }));
    const share = (trial) => (done.length > 1 ? 1 - (trial.rank - 1) / (done.length - 1) : 1);
    drawParallel(document.getElementById("parallel"), [...axes, { name: metric, values: done.map((trial) => trial.value) }], done.map((trial) => ({ ...trial, share: share(trial) })));
  }

  // Curves: the best trials until others are chosen.
  let curves = null, drawn = "";
  function choose() {
    const chosen = [...table.querySelectorAll("input:checked")].map((box) => trialOf(box.closest("tr")));
    compare.hidden = chosen.length < 2;
    const ranked = trials().filter((trial) => trial.rank).sort((a, b) => a.rank - b.rank), running = trials().filter((trial) => !trial.rank);
    const shown = (chosen.length ? chosen : [...ranked, ...running].slice(0, CURVES_AT_FIRST)).slice(0, MAX_CHOSEN);
    const key = shown.map((trial) => trial.job).join();
    if (key === drawn) return;
    drawn = key;
    const runs = shown.map(({ job, number: of, value }) => ({ id: job, label: `trial ${of}${value === null ? "" : ` (${number(value)})`}` }));
    if (curves === null) curves = makeCurves(panel, runs); else curves.setJobs(runs);
    curves.read();
  }
  table.addEventListener("change", choose);
  listen((type) => { if (type === "renewed") { sort(); drawAll(); choose(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
  choose();
  setInterval(() => { if (!document.hidden && document.getElementById("head").dataset.isLive === "yes") curves.read(); }, EVERY_MS);
}

// A study without trials yet has nothing to draw; its page is loaded again when the first one comes.
if (root) start();
else listen((type) => { if (type === "trial.proposed") location.reload(); });
