// Points and lines by Chart.js, as the pages of studies draw them. A click on a point opens its trial's job.
import { element, exact, style, tick } from "./format.js";

export const axis = (title, more = {}) => ({
  ticks: { color: style("--soft"), maxTicksLimit: 7, maxRotation: 0, callback: tick }, grid: { color: style("--line") }, border: { display: false },
  ...more, title: { display: Boolean(title), text: title, color: style("--soft") },
});

// `datasets`: of Chart.js; each point may have `text` for its tooltip and `job`. Returns the chart.
export function scatter(box, label, datasets, x, y = {}) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  box.replaceChildren(canvas);
  return new Chart(canvas, {
    type: "scatter", data: { datasets },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false,
      onClick: (_, [hit]) => { const job = hit && datasets[hit.datasetIndex].data[hit.index].job; if (job) location.href = `/jobs/${job}`; },
      plugins: {
        legend: { display: datasets.filter((one) => one.label).length > 1, labels: { color: style("--soft"), boxWidth: 14, boxHeight: 2, filter: (item) => Boolean(item.text) } },
        zoom: { zoom: { drag: { enabled: false } } },
        tooltip: { displayColors: false, callbacks: { label: ({ raw }) => raw.text ?? exact(raw.y) } },
      },
      scales: { x: axis(x.title, x), y: axis(y.title, y) },
    },
  });
}
export const dots = (label, data, color, radius = 4) => ({ label, data, backgroundColor: style(color), pointRadius: radius, pointHoverRadius: radius + 2 });
export const line = (label, data, color, more = {}) => ({ label, data, showLine: true, borderColor: style(color), backgroundColor: style(color), borderWidth: 2, pointRadius: 0, ...more });
