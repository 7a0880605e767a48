// The logs of a job: follow, earlier lines, search in those shown or in all, levels, age, jump to the last error.
import { element, exact } from "./format.js";

const MAX_LINES = 10000, PAGE = 1000, MAX_PAGES = 20, ENOUGH = 100, TYPING_MS = 300;
const ERROR = /\b(Traceback \(most recent|[A-Z]\w*(Error|Exception)\b|FATAL|CRITICAL|Killed|Segmentation fault|core dumped|out of memory)/;
const COLOURS = /\x1b\[[0-9;?]*[A-Za-z]/g; // of a terminal

export function makeLogs(panel) {
  const { id } = panel.dataset, find = (name) => panel.querySelector(`[data-part="${name}"]`);
  const view = find("lines"), rank = find("rank"), follow = find("follow"), empty = find("empty"), search = find("search"), hits = find("hits"), level = find("level"), only = find("only"), age = find("age");
  // `since`: the age before now when it was chosen, so that it does not move while lines are read.
  let since = null;
  // `first`: what is shown begins there, `after`: it ends there.
  let after = null, first = null, isBusy = false, found = [], at = -1, round = 0, typing = null, deleted = 0;

  const isFiltered = () => level.value !== "" || since !== null || (only.checked && search.value !== "");
  function row({ position, attempt, rank: of, number, line, level: its }) {
    const mark = element("i", { title: `attempt ${attempt}, rank ${of}, line ${number}` }, `a${attempt} r${of} │ `);
    const text = line.replace(COLOURS, ""), isError = its === "error" || its === "critical" || ERROR.test(text);
    return element("div", { "data-at": position, class: isError ? "line-error" : its === "warning" && "line-warning" }, mark, `${text}\n`);
  }
  const get = async (query) => {
    const wanted = { ...(rank.value && { rank: rank.value }), ...(level.value && { level: level.value }), ...(since && { since }), ...(only.checked && search.value && { search: search.value }) };
    const answer = await fetch(`/v1/jobs/${id}/logs?${new URLSearchParams({ ...wanted, ...query })}`);
    return answer.ok ? answer.json() : null;
  };
  async function read() {
    if (isBusy) return;
    isBusy = true;
    const of = round;
    try {
      const isFirst = after === null, got = await get(isFirst ? { tail: 500 } : { after, limit: PAGE });
      if (of !== round) return;
      if (got === null) { empty.textContent = "Logs are unavailable at the moment."; empty.hidden = false; return; }
      if (isFirst) first = got.searched_from;
      view.append(...got.lines.map(row));
      while (view.childNodes.length > MAX_LINES) { view.firstChild.remove(); first = Number(view.firstChild.dataset.at); }
      [after, deleted] = [got.next, got.num_deleted_lines];
      show();
      if (got.lines.length && follow.checked) view.scrollTop = view.scrollHeight;
      for (let page = 0; isFirst && isFiltered() && page < MAX_PAGES && view.childNodes.length < ENOUGH && of === round; page += 1)
        if (!(await readEarlier())) break;
    } catch { /* unavailable: retried */ } finally { isBusy = false; }
  }
  function show() {
    empty.textContent = isFiltered() ? (first > 0 ? "No such line yet." : "No such line.") : panel.dataset.isLive === "no" ? "Nothing was logged." : "Nothing logged yet.";
    empty.hidden = view.hasChildNodes();
    find("earlier").hidden = !first;
    if (search.value) mark();
    else if (deleted) hits.textContent = `the first ${exact(deleted)} lines are no longer kept`;
    if (isFiltered()) hits.textContent = `${view.childNodes.length} lines; searched ${first > 0 ? `back to line ${exact(first)} of ${exact(after)}` : `all ${exact(after)}`}`;
  }
  // Lines before the first one shown. True where there are more still.
  async function readEarlier() {
    if (!first) return false;
    const of = round, got = await get({ before: first, tail: PAGE });
    if (got === null || of !== round) return false;
    const height = view.scrollHeight - view.scrollTop;
    view.prepend(...got.lines.map(row));
    view.scrollTop = view.scrollHeight - height;
    first = got.searched_from;
    show();
    return first > 0;
  }
  // Other lines are wanted.
  function restart() {
    round += 1;
    view.replaceChildren();
    [after, first, found, at, isBusy] = [null, null, [], -1, false];
    hits.textContent = "";
    read();
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
  function goTo(line) {
    follow.checked = false;
    for (const other of view.querySelectorAll(".here")) other.classList.remove("here");
    line.classList.add("here");
    view.scrollTop = line.offsetTop - view.clientHeight / 3;
    view.scrollIntoView({ block: "nearest" });
  }
  function next(by) {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    goTo(found[at]);
    tally();
  }
  search.addEventListener("input", () => {
    if (!only.checked) { mark(); at = 0; next(-1); return; } // the newest match first
    clearTimeout(typing);
    typing = setTimeout(restart, TYPING_MS);
  });
  only.addEventListener("change", () => { if (search.value) restart(); });
  level.addEventListener("change", restart);
  age.addEventListener("change", () => {
    since = age.value ? new Date(Date.now() - 1000 * age.value).toISOString() : null;
    restart();
  });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); } });
  find("error").addEventListener("click", async () => {
    let has = true;
    for (let page = 0; page < MAX_PAGES && has && !view.querySelector(".line-error"); page += 1) has = await readEarlier();
    const errors = [...view.querySelectorAll(".line-error")], last = errors.at(-1);
    // The message ends a traceback; its beginning is the place to read from.
    const begin = errors.findLast((line) => line.textContent.includes("Traceback (most recent")) ?? last;
    hits.textContent = last ? "" : "no error found";
    if (begin) { goTo(begin); view.focus({ preventScroll: true }); }
  });
  find("earlier").addEventListener("click", () => { follow.checked = false; readEarlier(); });
  find("wrap").addEventListener("change", (event) => view.classList.toggle("wrapped", event.target.checked));
  rank.addEventListener("change", () => {
    find("download").href = `/jobs/${id}/log.txt${rank.value && `?rank=${rank.value}`}`;
    restart();
  });
  return read;
}
