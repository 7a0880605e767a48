// Keeps a page live: follows the stream and renews the parts marked data-live.
//
// The stream is closed while the page is hidden, because a browser has six connections to a server
// for all its tabs; it continues from its position when the page is shown again.
import { duration, number, times } from "./format.js";

const body = document.body, jobId = body.dataset.job, HIDDEN_MS = 2000;
let position = body.dataset.position, source = null, isAgain = false, hiding = null;

// Told of every event of the stream ({type}), and of "renewed" after the page's parts were.
const listeners = [];
export const listen = (listener) => listeners.push(listener);
const tell = (type) => { for (const listener of listeners) listener(type); };

// The parts of the page that the server renders again. Open details, and what is typed
// and chosen, stay.
let pending = false, again = false, timer = null;
async function renew() {
  if (pending) { again = true; return; }
  pending = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || part.contains(document.activeElement)) continue;
      for (const details of part.querySelectorAll("details[open][data-key]"))
        next.querySelector(`details[data-key="${CSS.escape(details.dataset.key)}"]`)?.setAttribute("open", "");
      for (const field of part.querySelectorAll("details[data-key] :is(input[type=text], select)")) {
        const within = `details[data-key="${CSS.escape(field.closest("details").dataset.key)}"]`;
        const twin = next.querySelector(`${within} [name="${CSS.escape(field.name)}"]`);
        if (twin) twin.value = field.value;
      }
      for (const box of part.querySelectorAll("input:checked[name]"))
        next.querySelector(`input[name="${CSS.escape(box.name)}"][value="${CSS.escape(box.value)}"]`)?.setAttribute("checked", "");
      times(next);
      if (part.innerHTML !== next.innerHTML) part.replaceChildren(...next.childNodes);
      Object.assign(part.dataset, next.dataset);
    }
    tell("renewed");
  } catch { /* The server is unavailable: the page is renewed when the stream reconnects. */ }
  finally { pending = false; if (again) { again = false; soon(); } }
}
function soon() { timer ??= setTimeout(() => { timer = null; renew(); }, 250); }

function progress(data) {
  const all = (name) => document.querySelectorAll(`[data-${name}="${CSS.escape(data.job_id)}"]`);
  if (data.step === null) return;
  const share = data.max_steps ? Math.min(1, data.step / data.max_steps) : null;
  if (share !== null) for (const bar of all("bar")) bar.value = share;
  const phase = !data.phase || ["starting", "training", "checkpointing", "stopping", "ending"].includes(data.phase) ? "" : `, ${data.phase}`;
  for (const text of all("steps"))
    text.textContent = data.step.toLocaleString("en") + (data.max_steps ? ` of ${data.max_steps.toLocaleString("en")}` : "") + ((data.max_steps ?? data.step) === 1 ? " step" : " steps") + phase;
  for (const text of all("eta")) text.textContent = data.eta_seconds === null ? "" : `${duration(data.eta_seconds)} left`;
  for (const text of all("percent")) text.textContent = share === null ? "" : `${Math.round(share * 100)} %`;
  for (const text of all("pace")) text.textContent = data.steps_per_second ? number(data.steps_per_second) : "–";
}

function show(isLive) {
  const state = document.getElementById("link-state");
  state.hidden = !(state.textContent = isLive ? "live" : "reconnecting");
  state.classList.toggle("offline", !isLive);
}

function open() {
  const query = new URLSearchParams({ ...(jobId && { job_id: jobId }), last_event_id: position });
  const opened = (source = new EventSource(`/v1/stream?${query}`));
  opened.onopen = () => { show(true); if (isAgain) { soon(); tell("reopened"); } isAgain = true; };
  opened.onerror = () => {
    show(false);
    if (opened.readyState === EventSource.CLOSED) setTimeout(() => { if (source === opened) { open(); soon(); } }, 2000);
  };
  opened.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  for (const type of ["reset", ...body.dataset.types.split(" ")])
    opened.addEventListener(type, (event) => { if (event.lastEventId) position = event.lastEventId; soon(); tell(type); });
}

function close() { source?.close(); source = null; }

export function follow() {
  if (!position) return;
  if (!document.hidden) open();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
    else if (source === null) open();
  });
}
