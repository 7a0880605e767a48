// Parallel coordinates: one line per trial through its hyperparameters and its value.
//
// `axes`: [{name, isLog, values}] with one value per trial (numbers, or texts for choices); `trials`:
// [{number, job, share}], share 0 (worst) to 1 (best), below 0 of one that was stopped early. The table of trials says the same as text.
import { element, number } from "./format.js";

const WIDTH = 1000, HEIGHT = 300, LEFT = 12, RIGHT = 60, TOP = 34, BOTTOM = 20;
const svg = (name, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// The place of each value on its axis, from 0 to 1, and the labels.
function scale({ values, isLog }) {
  if (values.some((value) => typeof value !== "number")) {
    const kinds = [...new Set(values.map(String))].sort();
    const at = (value) => (kinds.length > 1 ? kinds.indexOf(String(value)) / (kinds.length - 1) : 0.5);
    return { at, labels: kinds.slice(0, 12).map((kind) => [at(kind), kind]) };
  }
  const map = isLog && Math.min(...values) > 0 ? Math.log : (x) => x;
  const low = Math.min(...values), high = Math.max(...values), span = map(high) - map(low);
  const at = (value) => (span > 0 ? (map(value) - map(low)) / span : 0.5);
  return { at, labels: span > 0 ? [[0, number(low)], [1, number(high)]] : [[0.5, number(low)]] };
}

export function drawParallel(box, axes, trials) {
  const gap = (WIDTH - LEFT - RIGHT) / Math.max(1, axes.length - 1), height = HEIGHT - TOP - BOTTOM;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${trials.length} trials over ${axes.map((axis) => axis.name).join(", ")}` });
  const scales = axes.map(scale), y = (axis, value) => TOP + height * (1 - scales[axis].at(value));
  const order = trials.map((_, index) => index).sort((a, b) => trials[a].share - trials[b].share);
  for (const index of order) {
    const points = axes.map((axis, at) => `${LEFT + at * gap},${y(at, axis.values[index])}`).join(" ");
    const { number: of, job, share } = trials[index];
    const line = svg("g", share < 0 ? { class: "early" } : {}, svg("title", {}, `trial ${of}${share < 0 ? ", stopped early" : ""}`), svg("polyline", { points, class: "thick" }), svg("polyline", { points, "stroke-opacity": share < 0 ? 0.4 : 0.12 + 0.88 * share ** 2, "stroke-width": share === 1 ? 3 : 1.4 }));
    line.addEventListener("click", () => { location.href = `/jobs/${job}`; }); // by the keyboard: in the table
    picture.append(line);
  }
  axes.forEach((axis, at) => {
    const x = LEFT + at * gap;
    picture.append(svg("line", { x1: x, x2: x, y1: TOP, y2: TOP + height }), svg("text", { x, y: 14, class: "axis-name", "text-anchor": at === 0 ? "start" : at === axes.length - 1 ? "end" : "middle" }, axis.name));
    for (const [place, text] of scales[at].labels) picture.append(svg("text", { x: x + 6, y: TOP + height * (1 - place) + (place === 0 ? 14 : place === 1 ? -4 : 4) }, text));
  });
  box.replaceChildren(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Parallel coordinates" }, picture));
}
