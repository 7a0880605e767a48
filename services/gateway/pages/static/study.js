// The page of a study: history, parallel coordinates, value against each hyperparameter, curves of the
// chosen trials. All of it is read from the table of trials, which the server renders.
import { makeCurves } from "./curves.js";
import { element, exact, number } from "./format.js";
import { listen } from "./live.js";
import { drawParallel } from "./parallel.js";
import { axis, dots, line, scatter } from "./scatter.js";
import { makeSortable } from "./table.js";

const CURVES_AT_FIRST = 5, MAX_CHOSEN = 10, EVERY_MS = 5000, EARLY = "stopped early, at its last rung";
const root = document.getElementById("study");

function start() {
  const { metric } = root.dataset, space = JSON.parse(root.dataset.space);
  const table = document.getElementById("trials"), panel = document.getElementById("curves"), compare = document.getElementById("compare");
  const plots = [];

  const trialOf = (row) => ({
    number: Number(row.dataset.number), job: row.dataset.job, rank: Number(row.dataset.rank) || null,
    value: row.dataset.value === "" ? null : Number(row.dataset.value), point: JSON.parse(row.dataset.point), last: row.dataset.last ?? "",
  });
  const trials = () => [...table.querySelectorAll("tbody tr")].map(trialOf);
  const sort = makeSortable(table, (row, column) => {
    const trial = trialOf(row);
    return (column.startsWith("point:") ? trial.point[column.slice(6)] : trial[column]) ?? null;
  });

  const search = () => JSON.parse(document.getElementById("drawings").dataset.search);
  const said = (trial, more = "") => `trial ${trial.number}${trial.isEarly ? `, ${EARLY}` : ""}: ${metric} ${exact(trial.value)}${more}`;
  // Trials with a value, and those that were stopped, at their last rung, in grey.
  const both = (trials, place, radius) => [false, true].map((isEarly) => dots(isEarly ? EARLY : metric, trials.filter((trial) => Boolean(trial.isEarly) === isEarly).map(place), isEarly ? "--idle" : "--series-1", isEarly ? Math.min(3, radius) : radius)).filter(({ data }, at) => at === 0 || data.length);
  const plot = (box, label, datasets, x, ticks) => plots.push(scatter(box, label, datasets, { ...x, ...(ticks && { ticks: { ...axis("").ticks, stepSize: 1, callback: (at) => ticks[at] ?? "" } }) }, { title: metric }));

  // The trials of the table and the newest ones; every one that was the best when it ended.
  function drawHistory(ended) {
    const { points = [], stopped = [], bests = [] } = search();
    const known = new Map([...points.map(([of, value]) => [of, { number: of, value }]), ...stopped.map(([of, value]) => [of, { number: of, value, isEarly: true }]), ...ended.map((trial) => [trial.number, trial])]);
    const inOrder = [...known.values()].sort((a, b) => a.number - b.number), best = bests.map(([x, y]) => ({ x, y, text: `trial ${x}: ${metric} ${exact(y)}` }));
    if (best.length) best.push({ ...best.at(-1), x: Math.max(inOrder.at(-1).number, best.at(-1).x) });
    const place = (trial) => ({ x: trial.number, y: trial.value, job: trial.job, text: said(trial) });
    plot(document.getElementById("history"), `${metric} by trial; the best is ${best.length ? exact(best.at(-1).y) : "none"}`, [...both(inOrder, place, inOrder.length > 100 ? 2.5 : 4), line("best so far", best, "--series-2", { stepped: true })], { title: "trial", ticks: { ...axis("").ticks, precision: 0 } });
  }
  function drawValues(ended, names) {
    document.getElementById("values").replaceChildren(...names.map((name) => {
      const box = element("div", { class: "plot" }), having = ended.filter((trial) => name in trial.point), values = having.map((trial) => trial.point[name]);
      const kinds = values.every((value) => typeof value === "number") ? null : [...new Set(values.map(String))].sort();
      const place = ({ point: { [name]: x }, ...trial }) => ({ x: kinds ? kinds.indexOf(String(x)) : x, y: trial.value, job: trial.job, text: said(trial, `, ${name} ${x}`) });
      const figure = element("figure", {}, element("figcaption", {}, element("span", {}, name)), box);
      queueMicrotask(() => plot(box, `${metric} against ${name}`, both(having, place, 4), { title: name, type: space[name]?.log ? "logarithmic" : "linear" }, kinds));
      return figure;
    }));
  }
  function drawAll() {
    const early = trials().filter((trial) => trial.value === null && trial.last !== "").map((trial) => ({ ...trial, value: Number(trial.last), isEarly: true }));
    const done = trials().filter((trial) => trial.value !== null), ended = [...done, ...early], names = [...new Set(trials().flatMap((trial) => Object.keys(trial.point)))].sort();
    while (plots.length) plots.pop().destroy();
    for (const card of ["history-card", "parallel-card", "values-card"]) document.getElementById(card).hidden = !ended.length;
    if (window.Chart && ended.length) { drawHistory(ended); drawValues(ended, names); }
    const axes = names.filter((name) => ended.every(({ point }) => name in point)).map((name) => ({ name, isLog: space[name]?.log, values: ended.map((trial) => trial.point[name]) }));
    const share = (trial) => (trial.isEarly ? -1 : done.length > 1 ? 1 - (trial.rank - 1) / (done.length - 1) : 1);
    drawParallel(document.getElementById("parallel"), [...axes, { name: metric, values: ended.map((trial) => trial.value) }], ended.map((trial) => ({ ...trial, share: share(trial) })));
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
