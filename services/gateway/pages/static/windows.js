// The newest live windows of a job: its pace, its slowest pod, and statistics of losses and gradients.
import { duration, element, number } from "./format.js";

const EVERY_MS = 10000, NUM_SHOWN = 10;
const percent = (share) => (share === null ? "–" : `${number(Math.round(share * 1000) / 10)} %`);
const cell = (text) => element("td", { class: "num" }, text);
const stepTime = (seconds) => (seconds < 1 ? `${number(seconds * 1000)} ms` : duration(seconds));
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

// Of ranks that wait for each other the ratio of own work says which one is slow; of others their pace.
const slowest = ({ straggler_ratio: ratio, slowest_rank: rank, slowest_share: share }) => (ratio == null ? percent(share) : `rank ${rank}: ${number(Math.round(100 * ratio) / 100)} ×`);

function paceRow(window) {
  const { starts_at, attempt, steps_per_second: rate, utilisation_percent } = window;
  const of = attempt > 1 ? ` · attempt ${attempt}` : ""; // two attempts may share a window's time
  return element("tr", {}, element("th", { scope: "row" }, clock(starts_at) + of),
    cell(rate === null ? "–" : number(rate)), cell(rate ? stepTime(1 / rate) : "–"), cell(slowest(window)),
    cell(utilisation_percent === null ? "–" : percent(utilisation_percent / 100)));
}

function seriesRow([name, one]) {
  const known = one.num_finite > 0, text = (value) => cell(known && value !== null ? number(value) : "–");
  return element("tr", {}, element("th", { scope: "row" }, name), text(one.mean), text(one.deviation), text(one.low), text(one.high), cell(number(one.num_not_finite)));
}

export function makeWindows(panel) {
  const [pace, series] = ["pace", "series"].map((part) => panel.querySelector(`[data-part="${part}"]`));
  const about = panel.querySelector('[data-part="about"]');
  let at = -Infinity;
  return async function read() {
    if (performance.now() - at < EVERY_MS) return;
    at = performance.now();
    try {
      const answer = await fetch(`/v1/jobs/${panel.dataset.id}/windows?limit=${NUM_SHOWN}`);
      if (!answer.ok) return;
      const { windows, window_seconds } = await answer.json(), newest = windows.at(-1);
      panel.hidden = !newest;
      if (!newest) return;
      about.textContent = `each of ${window_seconds} s, the newest first`;
      pace.replaceChildren(...[...windows].reverse().map(paceRow));
      // A window that has just begun may have none yet.
      const told = windows.findLast((one) => Object.keys(one.series).length), rows = Object.entries(told?.series ?? {});
      series.replaceChildren(...rows.map(seriesRow));
      series.closest("table").hidden = !rows.length;
    } catch { /* unavailable: at the next look */ }
  };
}
