// The logs of a job: follow, earlier lines, search, wrap, jump to the last error.
import { element } from "./format.js";

const MAX_LINES = 10000, PAGE = 1000, MAX_PAGES_TO_ERROR = 20;
const ERROR = /\b(Traceback \(most recent|[A-Z]\w*(Error|Exception)\b|FATAL|CRITICAL|Killed|Segmentation fault|core dumped|out of memory)/;
const COLOURS = /\x1b\[[0-9;?]*[A-Za-z]/g; // of a terminal

export function makeLogs(panel) {
  const { id } = panel.dataset, find = (name) => panel.querySelector(`[data-part="${name}"]`);
  const view = find("lines"), rank = find("rank"), follow = find("follow"), empty = find("empty"), search = find("search"), hits = find("hits");
  let after = null, first = null, isBusy = false, found = [], at = -1;

  function row({ attempt, rank: of, number, line }) {
    const mark = element("i", { title: `attempt ${attempt}, rank ${of}, line ${number}` }, `a${attempt} r${of} │ `);
    const text = line.replace(COLOURS, "");
    return element("div", { class: ERROR.test(text) && "line-error" }, mark, `${text}\n`);
  }
  const get = async (query) => {
    const given = new URLSearchParams({ ...(rank.value && { rank: rank.value }), ...query });
    const answer = await fetch(`/v1/jobs/${id}/logs?${given}`);
    return answer.ok ? answer.json() : null;
  };
  async function read() {
    if (isBusy) return;
    isBusy = true;
    const of = rank.value;
    try {
      const got = await get(after === null ? { tail: 500 } : { after, limit: PAGE });
      if (of !== rank.value) return;
      if (got === null) { empty.textContent = "Logs are unavailable at the moment."; empty.hidden = false; return; }
      first ??= got.lines[0]?.position ?? null;
      view.append(...got.lines.map(row));
      while (view.childNodes.length > MAX_LINES) { view.firstChild.remove(); first += 1; }
      after = got.next;
      empty.textContent = panel.dataset.isLive === "no" ? "Nothing was logged." : "Nothing logged yet.";
      empty.hidden = view.hasChildNodes();
      find("earlier").hidden = !first;
      if (got.lines.length && search.value) mark();
      if (got.lines.length && follow.checked) view.scrollTop = view.scrollHeight;
    } catch { /* unavailable: retried */ } finally { isBusy = false; }
  }
  // Lines before the first one shown. True where there are more still.
  async function readEarlier() {
    if (!first) return false;
    const from = Math.max(0, first - PAGE), got = await get({ after: from, limit: first - from });
    if (got === null) return false;
    const height = view.scrollHeight - view.scrollTop;
    view.prepend(...got.lines.filter((line) => line.position < first).map(row));
    view.scrollTop = view.scrollHeight - height;
    first = from;
    find("earlier").hidden = !first;
    return first > 0;
  }

  function mark() {
    const wanted = search.value.toLowerCase(), was = found[at];
    for (const line of found) line.classList.remove("hit", "here");
    found = wanted ? [...view.children].filter((line) => line.textContent.toLowerCase().includes(wanted)) : [];
    for (const line of found) line.classList.add("hit");
    at = found.indexOf(was);
    tally();
  }
  function tally() { hits.textContent = !search.value ? "" : found.length ? `${Math.max(0, at) + 1} of ${found.length}` : "no match"; }
  function show(line) {
    follow.checked = false;
    for (const other of view.querySelectorAll(".here")) other.classList.remove("here");
    line.classList.add("here");
    view.scrollTop = line.offsetTop - view.clientHeight / 3;
    view.scrollIntoView({ block: "nearest" });
  }
  function next(by) {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    show(found[at]);
    tally();
  }
  search.addEventListener("input", () => { mark(); at = 0; next(-1); }); // the newest match first
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); } });
  find("error").addEventListener("click", async () => {
    let has = true;
    for (let page = 0; page < MAX_PAGES_TO_ERROR && has && !view.querySelector(".line-error"); page += 1) has = await readEarlier();
    const errors = [...view.querySelectorAll(".line-error")], last = errors.at(-1);
    // The message ends a traceback; its beginning is the place to read from.
    const begin = errors.findLast((line) => line.textContent.includes("Traceback (most recent")) ?? last;
    hits.textContent = last ? "" : "no error found";
    if (begin) { show(begin); view.focus({ preventScroll: true }); }
  });
  find("earlier").addEventListener("click", () => { follow.checked = false; readEarlier(); });
  find("wrap").addEventListener("change", (event) => view.classList.toggle("wrapped", event.target.checked));
  rank.addEventListener("change", () => {
    view.replaceChildren();
    [after, first, found, at] = [null, null, [], -1];
    const link = find("download");
    link.href = `/jobs/${id}/log.txt${rank.value && `?rank=${rank.value}`}`;
    read();
  });
  return read;
}
