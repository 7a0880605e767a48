// One line chart by Chart.js in the colours of the page. Values are shown exactly in the tooltip;
// dragging selects a range of x, and `onZoom` hears of it.
import { duration, element, exact, style } from "./format.js";
import { axis } from "./scatter.js";

// Exponential smoothing, without the pull towards zero at the start; gaps stay gaps.
export function smoothed(points, weight) {
  let sum = 0, total = 0;
  return points.map(({ x, y }) => {
    if (!Number.isFinite(y)) return { x, y };
    sum = sum * weight + y;
    total = total * weight + 1;
    return { x, y: sum / total };
  });
}

const faint = (color) => `${color}47`; // the colours of the style sheet have six hexadecimal digits

// Vertical lines where later attempts began, and ticks at the bottom where a value is NaN or infinite.
const marks = {
  id: "marks",
  afterDatasetsDraw(chart, _, { at, notFinite, color, bad }) {
    const { ctx, chartArea: area, scales: { x } } = chart;
    const line = (value, top) => {
      const left = x.getPixelForValue(value);
      ctx.beginPath();
      ctx.moveTo(left, top);
      ctx.lineTo(left, area.bottom);
      ctx.stroke();
      return left;
    };
    const isShown = (value) => value >= x.min && value <= x.max;
    ctx.save();
    ctx.strokeStyle = bad;
    ctx.lineWidth = 2;
    for (const step of notFinite?.filter(isShown) ?? []) line(step, area.bottom - 7);
    ctx.lineWidth = 1;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = ctx.strokeStyle = color;
    ctx.setLineDash([4, 3]);
    for (const mark of at?.filter((one) => isShown(one.x)) ?? []) ctx.fillText(mark.text, line(mark.x, area.top) + 4, area.top + 10);
    ctx.restore();
  },
};

function dataset(line, options) {
  const { label, color, points, low, high } = line, weight = options.smoothing;
  const look = {
    label, borderColor: color, backgroundColor: color, borderWidth: 1.8, pointHitRadius: 8, tension: 0,
    pointRadius: (c) => (c.dataset.data.length < 40 ? 2.5 : 0), pointStyle: "circle",
  };
  const band = low && !weight ? [
    { ...look, data: low, borderWidth: 0, pointRadius: 0, isBand: true },
    { ...look, data: high, borderWidth: 0, pointRadius: 0, isBand: true, fill: "-1", backgroundColor: faint(color) },
  ] : [];
  if (!weight) return [...band, { ...look, data: points }];
  return [
    { ...look, data: smoothed(points, weight), raw: points, pointRadius: 0 },
    { ...look, data: points, borderColor: faint(color), borderWidth: 1, pointRadius: 0, isBand: true },
  ];
}

const xText = (axis, x) => (axis === "time" ? `${duration(x)} after the start` : `step ${exact(x)}`);

// `lines`: [{label, color, points, notFinite, low?, high?}]. `options`: axis, smoothing, isLog, range, marks,
// and how a value is written at the y axis, where it has a unit.
export function makePlot(box, name, onZoom) {
  const canvas = element("canvas", { role: "img", "aria-label": `${name} by step` });
  box.replaceChildren(canvas);
  let options = { axis: "step" };
  const chart = new Chart(canvas, {
    type: "line",
    data: { datasets: [] },
    plugins: [marks],
    options: {
      animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      plugins: {
        legend: { display: false },
        marks: {},
        tooltip: {
          filter: (item) => !item.dataset.isBand,
          callbacks: {
            title: ([item]) => (item ? xText(options.axis, item.parsed.x) : ""),
            label: ({ dataset: { label, raw }, dataIndex, parsed: { y } }) => ` ${label}: ${exact(raw ? raw[dataIndex].y : y)}${raw ? ` (smoothed ${exact(Number(y.toPrecision(6)))})` : ""}`,
          },
        },
        zoom: {
          zoom: { drag: { enabled: true, backgroundColor: faint(style("--accent")), threshold: 6 }, mode: "x", onZoom: ({ chart: { scales: { x } } }) => onZoom([x.min, x.max]) },
        },
      },
      scales: {
        x: { type: "linear", bounds: "data", ...axis("step"), grid: { display: false } },
        y: { type: "linear", ...axis("") },
      },
    },
  });
  const show = (lines, given) => {
    options = given;
    const { x, y } = chart.options.scales;
    y.type = options.isLog ? "logarithmic" : "linear";
    if (options.text) y.ticks.callback = (value) => options.text(value);
    [x.min, x.max] = options.range ?? [undefined, undefined];
    x.title.text = options.axis === "time" ? "time since the start" : "step";
    x.ticks.callback = options.axis === "time" ? (value) => duration(value) : (value) => exact(value);
    chart.options.plugins.marks = { at: options.marks, notFinite: lines.flatMap((line) => line.notFinite), color: style("--soft"), bad: style("--bad") };
    chart.options.plugins.tooltip.displayColors = lines.length > 1;
    chart.data.datasets = lines.flatMap((line) => dataset(line, options));
    chart.update("none");
    canvas.setAttribute("aria-label", `${name} by ${options.axis}. ${lines.map(summary).join(" ")}`);
  };
  return { show, destroy: () => chart.destroy() };
}

// What a screen reader says in the place of the picture.
function summary({ label, points }) {
  const shown = points.filter(({ y }) => Number.isFinite(y));
  if (!shown.length) return `${label}: no finite value.`;
  const ys = shown.map(({ y }) => y), last = shown.at(-1);
  return `${label}: ${exact(last.y)} at the end; lowest ${exact(Math.min(...ys))}, highest ${exact(Math.max(...ys))}.`;
}
