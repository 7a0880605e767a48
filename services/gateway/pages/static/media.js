// What a job logged besides numbers: a name, and a slider over its steps.
// Everything is set as text or shown as a picture by the browser; nothing is read as markup.
import { element, exact, number } from "./format.js";

const EVERY_MS = 10000, MAX_ROWS = 100;

const cell = (value) => element("td", { class: typeof value === "number" && "num" }, value === null ? "" : String(value));

function table({ columns, rows }) {
  const head = element("tr", {}, ...columns.map((name, at) => element("th", { scope: "col", class: rows.some((row) => typeof row[at] === "number") && "num" }, name)));
  const body = rows.slice(0, MAX_ROWS).map((row) => element("tr", {}, ...row.map(cell)));
  const box = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  const more = rows.length - MAX_ROWS;
  return more > 0 ? element("div", {}, box, element("p", { class: "soft" }, `${exact(more)} more rows: download it`)) : box;
}

const SVG = "http://www.w3.org/2000/svg";
function drawing(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function histogram({ low, high, counts, num_values: all, num_counted: counted }) {
  const most = Math.max(1, ...counts), width = (high - low) / counts.length;
  const bars = counts.map((count, at) => {
    const from = low + at * width, title = drawing("title", {});
    title.textContent = `${number(from)} to ${number(from + width)}: ${exact(count)}`;
    const height = (count / most) * 100;
    return drawing("rect", { x: at, y: 100 - height, width: 0.9, height, class: "bin" }, title);
  });
  const label = `Histogram from ${number(low)} to ${number(high)}, at most ${exact(most)} in a bin`;
  const plot = drawing("svg", { viewBox: `0 0 ${counts.length} 100`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: "histogram" }, ...bars);
  const part = `${all === counted ? exact(all) : `${exact(counted)} of ${exact(all)}`} values, at most ${exact(most)} in a bin`;
  return element("div", {}, plot, element("div", { class: "ends" }, element("span", {}, number(low)), element("span", { class: "soft" }, part), element("span", {}, number(high))));
}

const size = (bytes) => (bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${number(bytes / 1000)} kB` : `${number(bytes / 1e6)} MB`);

async function show(one) {
  const link = element("a", { class: "button small", href: one.content_url, download: true }, "Download");
  const caption = element("figcaption", {}, element("span", {}, one.caption || one.file_name || ""), element("span", { class: "soft" }, size(one.size_bytes)), link);
  if (one.media === "image") {
    const said = one.caption || `${one.name} at step ${one.step}`;
    return element("figure", {}, element("img", { src: `${one.content_url}#${one.sha256}`, alt: said, loading: "lazy" }), caption);
  }
  if (one.media === "file") return element("figure", {}, caption);
  const answer = await fetch(one.content_url);
  if (!answer.ok) return element("figure", {}, element("p", { class: "soft" }, answer.status === 404 ? "It is no longer stored, or it is damaged." : "It cannot be read at the moment."), caption);
  const make = { table, histogram }[one.media];
  const content = make ? make(await answer.json()) : element("pre", { tabindex: "0" }, await answer.text());
  return element("figure", {}, content, caption);
}

function makeName(jobId, name) {
  const label = element("output", { class: "soft" }), slider = element("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": `Step of ${name}` });
  const shown = element("div", { class: "items" }), node = element("section", { class: "media-name", "aria-label": name }, element("div", { class: "title" }, element("h3", {}, name), label), slider, shown);
  let steps = [], byStep = new Map(), known = "", drawn = "";

  async function draw() {
    const step = steps[slider.value], items = byStep.get(step) ?? [];
    label.textContent = steps.length ? `step ${exact(step)} · ${Number(slider.value) + 1} of ${steps.length}` : "";
    slider.setAttribute("aria-valuetext", `step ${step}`);
    const wanted = items.map((one) => one.sha256 + one.item + one.step).join();
    if (wanted === drawn) return;
    drawn = wanted;
    const made = await Promise.all(items.map((one) => show(one).catch(() => element("p", { class: "soft" }, "It cannot be read at the moment."))));
    if (wanted === drawn) shown.replaceChildren(...made); // the slider may have gone on
  }
  slider.addEventListener("input", draw);
  return { node, async read(summary) {
    const state = JSON.stringify(summary);
    if (state === known) return;
    const answer = await fetch(`/v1/jobs/${jobId}/media/items?${new URLSearchParams({ name })}`);
    if (!answer.ok) return;
    known = state;
    const atEnd = !steps.length || Number(slider.value) === steps.length - 1, chosen = steps[slider.value];
    byStep = new Map();
    for (const one of (await answer.json()).items) byStep.set(one.step, [...(byStep.get(one.step) ?? []), one]);
    steps = [...byStep.keys()];
    slider.max = Math.max(0, steps.length - 1);
    slider.hidden = steps.length < 2;
    slider.value = atEnd ? steps.length - 1 : Math.max(0, steps.indexOf(chosen));
    await draw();
  } };
}

export function makeMedia(panel) {
  const id = panel.dataset.id, list = panel.querySelector('[data-part="names"]'), names = new Map();
  let at = -Infinity;
  return async function read() {
    if (performance.now() - at < EVERY_MS) return;
    at = performance.now();
    try {
      const answer = await fetch(`/v1/jobs/${id}/media`);
      if (!answer.ok) return;
      const found = (await answer.json()).names;
      panel.hidden = !found.length;
      for (const summary of found) {
        if (!names.has(summary.name)) { names.set(summary.name, makeName(id, summary.name)); list.append(names.get(summary.name).node); }
        await names.get(summary.name).read(summary);
      }
    } catch { /* unavailable: at the next look */ }
  };
}
