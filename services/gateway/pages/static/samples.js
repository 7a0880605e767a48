// The samples of one job: the names of its series, and the curves of those that are shown, in one
// request; after the first one only what changed.
const POINTS = 600, NAMES_PER_PAGE = 500, MAX_PAGES = 2;

// Raised where the metrics service does not answer; what was read before is still there.
export class Unavailable extends Error {}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Unavailable(path);
  return answer.json();
}

// All series of a job, and how many samples were left out.
export async function readNames(jobId) {
  const found = [];
  let after = null, numLeftOut = 0;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const query = new URLSearchParams({ limit: NAMES_PER_PAGE, ...(after && { after }) });
    const got = await get(`/v1/jobs/${jobId}/series?${query}`);
    found.push(...got.series);
    numLeftOut = got.num_samples_left_out;
    if ((after = got.next) === null) break;
  }
  return { found, numLeftOut };
}

// When the attempts of a job were at which step, in seconds: attempt -> {steps, times}, ascending. Of an
// attempt whose pods reported no steps, its start and its end.
async function readClocks(jobId, attempts) {
  const [{ runs }, reported] = await Promise.all([get(`/v1/jobs/${jobId}`), get(`/v1/jobs/${jobId}/times`)]), seconds = (text) => Date.parse(text) / 1000;
  const clocks = new Map();
  for (const run of runs.filter((one) => one.started_at)) {
    const start = seconds(run.started_at), of = ({ attempt }) => attempt === run.attempt;
    const found = reported.attempts.find(of), logged = attempts.find(of);
    if (found) clocks.set(run.attempt, { start, ...found });
    else if (logged) clocks.set(run.attempt, { start, steps: [logged.first_step, logged.last_step], times: [start, run.ended_at ? seconds(run.ended_at) : Date.now() / 1000] });
  }
  return clocks;
}

// The time of a step: of the last point before it, and its share of the way to the next one.
function timeAt({ start, steps, times }, firstStep, step) {
  let low = 0, high = steps.length;
  while (low < high) { const middle = (low + high) >> 1; if (steps[middle] <= step) low = middle + 1; else high = middle; }
  const [fromStep, from] = low ? [steps[low - 1], times[low - 1]] : [Math.min(firstStep, steps[0]), Math.min(start, times[0])];
  if (low === steps.length || steps[low] === fromStep) return from;
  return from + ((step - fromStep) / (steps[low] - fromStep)) * (times[low] - from);
}

// `curves`: name -> {steps, values, lows, highs, notFinite}; `attempts`: [{attempt, first_step}].
export function makeSamples(jobId, rank = 0) {
  const samples = { curves: new Map(), attempts: [] };
  let clocks = new Map();
  let asked = null, after = null;

  function take(name, fresh, chart) {
    const columns = { steps: chart.steps[fresh.steps], values: fresh.values, lows: fresh.lows, highs: fresh.highs };
    const old = chart.is_whole ? null : samples.curves.get(name), at = old?.steps.findIndex((step) => step >= fresh.from_step) ?? 0;
    const num = !old ? 0 : at < 0 ? old.steps.length : at, merged = {};
    for (const [column, list] of Object.entries(columns)) merged[column] = list ? (old?.[column]?.slice(0, num) ?? []).concat(list) : null;
    merged.notFinite = (old?.notFinite.filter((step) => step < fresh.from_step) ?? []).concat(fresh.not_finite);
    samples.curves.set(name, merged);
  }
  samples.read = async (names, range) => {
    const query = new URLSearchParams({ max_points: POINTS, ...(rank && { rank }), ...(range && { from_step: range[0], to_step: range[1] }) });
    for (const name of names) query.append("name", name);
    const question = query.toString();
    if (question !== asked) [asked, after] = [question, null];
    if (!names.length) return;
    if (after !== null) query.set("after", after);
    const chart = await get(`/v1/jobs/${jobId}/chart?${query}`);
    if (question !== asked) return; // asked for something else meanwhile
    after = chart.next;
    if (chart.is_whole) samples.curves.clear();
    samples.attempts = chart.attempts;
    for (const [name, fresh] of Object.entries(chart.series)) take(name, fresh, chart);
  };
  samples.readTimes = async () => { clocks = await readClocks(jobId, samples.attempts); };
  samples.secondsAt = (step) => {
    const one = samples.attempts.findLast(({ attempt, first_step }) => first_step <= step && clocks.has(attempt));
    if (!one) return NaN;
    const first = Math.min(...[...clocks.values()].map(({ start }) => start));
    return timeAt(clocks.get(one.attempt), one.first_step, step) - first;
  };
  samples.restart = () => { after = null; };
  return samples;
}
