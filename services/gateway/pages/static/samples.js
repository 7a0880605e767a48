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

// All series of a job, and how many samples were of names beyond the bound, and so left out.
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

// When the attempts of a job ran, in seconds: attempt -> [start, end].
async function readSpans(jobId) {
  const { runs } = await get(`/v1/jobs/${jobId}`), seconds = (text) => Date.parse(text) / 1000;
  return new Map(runs.filter((run) => run.started_at).map((run) => [run.attempt, [seconds(run.started_at), run.ended_at ? seconds(run.ended_at) : Date.now() / 1000]]));
}

// `curves`: name -> {steps, values, lows, highs, notFinite}; `attempts`: [{attempt, first_step}].
export function makeSamples(jobId) {
  const samples = { curves: new Map(), attempts: [] };
  let spans = new Map();
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
    const query = new URLSearchParams({ max_points: POINTS, ...(range && { from_step: range[0], to_step: range[1] }) });
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
  // Samples carry no time. It is estimated: within an attempt, steps are spread evenly over its time.
  samples.readTimes = async () => { spans = await readSpans(jobId); };
  samples.secondsAt = (step) => {
    const one = samples.attempts.findLast(({ attempt, first_step }) => first_step <= step && spans.has(attempt));
    if (!one) return NaN;
    const [start, end] = spans.get(one.attempt), first = Math.min(...[...spans.values()].map(([began]) => began));
    const share = one.last_step > one.first_step ? Math.min(1, (step - one.first_step) / (one.last_step - one.first_step)) : 1;
    return start - first + share * (end - start);
  };
  samples.restart = () => { after = null; };
  return samples;
}
