// Keeps a page live: follows the stream, renews the parts marked data-live, draws charts and logs.
// Everything shown here is set as text, never as markup from data.
"use strict";
const body = document.body, jobId = body.dataset.job;
let position = body.dataset.position;

function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], parts = [];
  let rest = Math.round(seconds);
  for (const [size, unit] of units) {
    if (rest >= size || parts.length) parts.push([Math.floor(rest / size), unit]);
    rest %= size;
  }
  return parts.slice(0, 2).filter(([n]) => n).map(([n, unit]) => `${n} ${unit}`).join(" ");
}
const number = (x) => (Number.isInteger(x) ? x.toLocaleString("en") : Number(x.toPrecision(4)).toString());

function times(root = document) {
  for (const time of root.querySelectorAll("time[data-relative]")) {
    const at = new Date(time.dateTime), age = (Date.now() - at) / 1000;
    time.title = at.toLocaleString();
    const far = age > 86400 ? at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : null;
    time.textContent = far ?? (age < 5 ? "just now" : `${age < 60 ? `${Math.floor(age)} s` : duration(age).split(" ").slice(0, 2).join(" ")} ago`);
  }
}

// The parts of the page that the server renders again. Open details stay open.
let pending = null, again = false;
async function renew() {
  if (pending) { again = true; return; }
  pending = fetch(location.href, { headers: { accept: "text/html" } });
  try {
    const answer = await pending;
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || part.contains(document.activeElement)) continue;
      for (const details of part.querySelectorAll("details[open][data-key]"))
        next.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"]`)?.setAttribute("open", "");
      times(next);
      if (part.innerHTML !== next.innerHTML) part.replaceChildren(...next.childNodes);
      Object.assign(part.dataset, next.dataset);
    }
  } catch { /* The server is unavailable: the page is renewed when the stream reconnects. */ }
  finally { pending = null; if (again) { again = false; soon(); } }
}
let timer = null, charts = null;
function soon() { timer ??= setTimeout(() => { timer = null; renew(); }, 250); }

function progress(data) {
  const all = (name) => document.querySelectorAll(`[data-${name}="${CSS.escape(data.job_id)}"]`);
  if (data.step === null) return;
  const share = data.max_steps ? Math.min(1, data.step / data.max_steps) : null;
  if (share !== null) for (const bar of all("bar")) bar.value = share;
  for (const text of all("steps"))
    text.textContent = data.step.toLocaleString("en") + (data.max_steps ? ` of ${data.max_steps.toLocaleString("en")}` : "") + " steps";
  for (const text of all("eta")) text.textContent = data.eta_seconds === null ? "" : `${duration(data.eta_seconds)} left`;
  for (const text of all("percent")) text.textContent = share === null ? "" : `${Math.round(share * 100)} %`;
  for (const text of all("pace")) text.textContent = data.steps_per_second ? number(data.steps_per_second) : "–";
}

function follow() {
  const query = new URLSearchParams({ ...(jobId && { job_id: jobId }), last_event_id: position });
  const source = new EventSource(`/v1/stream?${query}`), state = document.getElementById("link-state");
  const show = (isLive) => {
    state.hidden = !(state.textContent = isLive ? "live" : "reconnecting");
    state.classList.toggle("offline", !isLive);
  };
  const remember = (event) => { if (event.lastEventId) position = event.lastEventId; };
  let isAgain = false;
  source.onopen = () => { show(true); if (isAgain) { soon(); charts?.restart(); } isAgain = true; };
  source.onerror = () => {
    show(false);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { follow(); soon(); }, 2000);
  };
  source.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  for (const type of ["reset", ...body.dataset.types.split(" ")])
    source.addEventListener(type, (event) => { remember(event); soon(); if (/^(run\.|checkpoint\.restored|reset)/.test(type)) charts?.restart(); });
}

// Charts: one per series, by Chart.js where it is available, else a plain line.
function makeCharts(root) {
  const series = new Map(), style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let busy = false, from = 0, stale = true;
  const order = (name) => (/(^|_)loss$/.test(name) ? (name === "loss" ? 0 : 1) : /accuracy|score/.test(name) ? 2 : 3);
  function figure(name) {
    const node = document.createElement("figure"), caption = document.createElement("figcaption"), last = document.createElement("b"), plot = document.createElement("div");
    plot.className = "plot";
    caption.append(name.replaceAll("_", " "), last);
    node.append(caption, plot);
    node.dataset.order = `${order(name)} ${name}`;
    const before = [...root.children].find((other) => other.dataset.order > node.dataset.order);
    root.insertBefore(node, before ?? null);
    return { name, last, plot, points: [], chart: null };
  }
  function draw(one) {
    const shown = one.points.filter((point) => Number.isFinite(point.y)), end = one.points.at(-1);
    one.last.textContent = end ? `${typeof end.y === "number" ? number(end.y) : end.y} at step ${end.x.toLocaleString("en")}` : "";
    if (!window.Chart) return plain(one, shown);
    one.chart ??= chart(one);
    one.chart.data.datasets[0].data = shown;
    one.chart.update("none");
  }
  function chart(one) {
    const canvas = document.createElement("canvas"), color = style(`--series-${1 + (Math.min(order(one.name), 3))}`);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${one.name} by step`);
    one.plot.replaceChildren(canvas);
    const axis = { ticks: { color: style("--soft"), maxTicksLimit: 7, maxRotation: 0 }, grid: { color: style("--line") }, border: { display: false } };
    return new Chart(canvas, {
      type: "line",
      data: { datasets: [{ data: [], borderColor: color, backgroundColor: color, borderWidth: 1.8, pointRadius: (c) => (c.dataset.data.length < 40 ? 2.5 : 0), pointHitRadius: 8, tension: 0 }] },
      options: {
        animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: { legend: { display: false }, tooltip: { displayColors: false, callbacks: { title: ([item]) => `step ${item.parsed.x.toLocaleString("en")}` } } },
        scales: { x: { type: "linear", bounds: "data", beginAtZero: true, ...axis, grid: { display: false }, afterBuildTicks: (x) => { if (x.ticks.length > 2 && x.max % x.ticks[1].value) x.ticks = x.ticks.filter((tick) => tick.value < x.max); } }, y: axis },
      },
    });
  }
  function plain(one, points) {
    const xs = points.map((p) => p.x), ys = points.map((p) => p.y), at = (v, low, high, size) => (high > low ? ((v - low) / (high - low)) * size : size / 2);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)], make = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
    const svg = make("svg"), line = make("polyline"), look = { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${one.name} by step` };
    for (const [name, value] of Object.entries(look)) svg.setAttribute(name, value);
    line.setAttribute("points", points.map((p) => `${at(p.x, low[0], high[0], 100)},${100 - at(p.y, low[1], high[1], 100)}`).join(" "));
    svg.append(line);
    one.plot.replaceChildren(svg);
  }
  async function read() {
    if (busy) return;
    busy = true;
    const empty = document.getElementById("charts-empty"), whole = stale;
    stale = false;
    try {
      const answer = await fetch(`/v1/jobs/${jobId}/metrics?max_points=1200&from_step=${whole ? 0 : from}`);
      empty.textContent = answer.ok ? "No samples yet." : "Metrics are unavailable at the moment.";
      if (!answer.ok) { stale ||= whole; empty.hidden = series.size > 0; return; }
      for (const [name, got] of Object.entries((await answer.json()).series)) {
        if (!series.has(name)) series.set(name, figure(name));
        const one = series.get(name), kept = whole ? [] : one.points.filter((point) => point.x < from);
        one.points = kept.concat(got.steps.map((x, i) => ({ x, y: got.values[i] })));
        if (one.points.length > 3000) stale = true;
        if (got.steps.length || whole) draw(one);
      }
      // Some steps back: rarer series and late batches arrive after the newest step.
      from = Math.max(0, Math.max(...[...series.values()].map((one) => one.points.at(-1)?.x ?? 0)) - 300);
      empty.hidden = series.size > 0;
    } catch { stale ||= whole; } finally { busy = false; }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const one of series.values()) { one.chart?.destroy(); one.chart = null; draw(one); }
  });
  return { read, restart: () => { stale = true; read(); } };
}

function makeLogs(view) {
  const rank = document.getElementById("log-rank"), isFollowing = document.getElementById("log-follow"), empty = document.getElementById("logs-empty");
  let after = null, busy = false;
  async function read() {
    if (busy) return;
    busy = true;
    const of = rank.value, query = new URLSearchParams({ ...(of && { rank: of }), ...(after === null ? { tail: 500 } : { after, limit: 1000 }) });
    try {
      const answer = await fetch(`/v1/jobs/${jobId}/logs?${query}`);
      empty.textContent = answer.ok ? "No lines yet." : "Logs are unavailable at the moment.";
      const got = answer.ok ? await answer.json() : { lines: [], next: after };
      if (of !== rank.value) return;
      for (const line of got.lines) {
        const mark = document.createElement("i");
        mark.textContent = `a${line.attempt} r${line.rank} │ `;
        mark.title = `attempt ${line.attempt}, rank ${line.rank}, line ${line.number}`;
        view.append(mark, `${line.line}\n`);
      }
      while (view.childNodes.length > 10000) view.firstChild.remove();
      after = got.next;
      empty.hidden = view.hasChildNodes() && answer.ok;
      if (got.lines.length && isFollowing.checked) view.scrollTop = view.scrollHeight;
    } catch { /* unavailable: retried */ } finally { busy = false; }
  }
  rank.addEventListener("change", () => { view.replaceChildren(); after = null; read(); });
  return read;
}

// On the document, because the forms of a renewed part are new elements.
document.addEventListener("submit", (event) => { const text = event.target.dataset.confirm; if (text && !confirm(text)) event.preventDefault(); });
times();
setInterval(times, 10000);
if (position) follow();
if (jobId) {
  charts = makeCharts(document.getElementById("charts"));
  const readLogs = makeLogs(document.getElementById("logs")), head = document.getElementById("head");
  let rounds = 0;
  const look = () => { if (!document.hidden && (head.dataset.isLive === "yes" || rounds++ < 10)) { charts.read(); readLogs(); } };
  look();
  setInterval(look, 2000);
}
