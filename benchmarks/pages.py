"""How soon a page shows something, and how large its requests are, with 10,000 jobs.

The gateway serves its pages over a real Postgres to headless Chromium, with an empty cache each
time; the metrics service is replaced by one that answers at once with as many points as were asked
for. The peer is the pages of commit c01013c, measured by this script on the same machine. Needs
Chromium.
"""

import asyncio
import math
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright

from benchmarks.report import Row, options, publish, skip
from services.runtime.database import Database
from services.runtime.transaction import Origin
from services.standalone import jars
from services.standalone.embedded import running_postgres
from services.standalone.ports import free_port
from tests.e2e.browser.conftest import CHROMIUM, FLAGS
from tests.e2e.browser.site import Site
from tests.handlers.gateway.model import Model
from tests.handlers.gateway.story import Story, recovery, search

TITLE = "Pages with 10,000 jobs"
MEASURES = (
    "services/gateway/app.py",
    "services/gateway/core",
    "services/gateway/pages",
    "services/gateway/queries",
)
NOTES = """
Headless Chromium with an empty cache, on this machine; a job with 50 series of 100,000 steps. The
metrics service is replaced by one that answers at once. Median of the times, the largest of the
sizes; the largest request is mostly Chart.js itself. The peer is the pages of commit c01013c,
measured once by this script on this kind of machine, not again in each run; a study had no charts
there.
"""

NUM_JOBS = 10_000
MAX_PAINT_SECONDS = 1.0
MAX_REQUEST_BYTES = 300_000
SETTLE_SECONDS = 1.5
STEPS, NUM_SERIES, POINTS = 100_000, 50, 600

# First paint in seconds and the largest answer in bytes, of commit c01013c. It had no other pages.
BASELINE = {"jobs": (0.45, 48_000), "a job": (0.34, 1_516_000), "a study": (0.56, 14_000)}

HISTORY = f"""
create temp table numbers as
    select n, 'job_' || translate(lpad(n::text, 26, '0'), '0189', 'abcd') as job_id,
        timestamptz '2026-01-01' + n * interval '1 minute' as at
    from generate_series(1, {NUM_JOBS}) as n;
insert into jobs (job_id, tenant_id, state, state_seq, queued_at, started_at, attempt,
    cancel_requested, finished_at, detail, result, refused_seq)
select job_id, 'default', case when n % 10 = 0 then 'failed' else 'succeeded' end, 9, at, at, 1,
    false, at, 'rank 1: ValueError: loss is not finite', jsonb_build_object('best',
        jsonb_build_object('name', 'validation_accuracy', 'goal', 'maximize',
            'value', 0.5 + n % 1000 / 2000.0, 'step', 400)), -1 from numbers;
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, pool,
    devices, priority, max_steps, metric, goal)
select job_id, n, 'sweep-' || n % 7 || '-seed-' || n, '{{}}', true, at, n, 'default', 2, 0, 400,
    'validation_accuracy', 'maximize' from numbers;
insert into job_progress
select job_id, n, 1, 1, 'training', 400, 400, 4, 0, 0, 1, at, at, at from numbers;
insert into job_spend select job_id, 'default', 5000, at from numbers;
insert into tenant_counts
values ('default', '{{"succeeded": 9000, "failed": 1000}}', {NUM_JOBS}, 1);
"""


@dataclass(slots=True)
class LoadedSite(Site):
    """The pages over this history, with many series of many steps."""

    async def _forward(self, part: str, path: str, parameters: Any) -> Any:
        if path not in ("/series", "/chart", "/samples"):
            return await Site._forward(self, part, path, parameters)
        given = parameters or {}
        names = [f"series_{number}" for number in range(NUM_SERIES)]
        if path == "/series":
            last = {"num_samples": STEPS, "first_step": 0, "last_step": STEPS, "last_value": 0.5}
            series = [{"name": name, **last} for name in names]
            counts = {"num_series": NUM_SERIES, "num_samples_left_out": 0}
            return {"job_id": given["job_id"], "series": series, "next": None, **counts}
        chosen = given["name"] if path == "/chart" else names
        num_points = POINTS if path == "/chart" else given["max_points"]
        steps = list(range(given["from_step"] or 0, STEPS, STEPS // num_points))
        values = [2.3 * math.exp(-step / 30_000) + math.sin(step) / 100 for step in steps]
        if path == "/samples":
            one = {"steps": steps, "values": values, "num_samples": STEPS, "is_downsampled": True}
            return {"job_id": given["job_id"], "series": dict.fromkeys(chosen, one)}
        curve = {
            "steps": 0,
            "from_step": 0,
            "values": values,
            "lows": values,
            "highs": values,
            "not_finite": [],
        }
        return {
            "job_id": given["job_id"],
            "width": STEPS // num_points,
            "is_whole": True,
            "next": "n",
            "attempts": [],
            "steps": [steps],
            "series": dict.fromkeys(chosen, curve),
        }


async def measure(num_times: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running_postgres(folder / "postgres") as postgres:
            origin = Origin("/drivetrain/gateway", "drivetrain.")
            database = Database(postgres.dsn, "gateway", origin)
            await database.open(["services.gateway"])
            cache = jars.default_cache()
            await asyncio.to_thread(jars.fetch_jars, jars.locked_jars("web"), cache)
            jars.unpack_web_assets(cache, folder / "assets")
            site = LoadedSite(Model(database), free_port(), folder / "assets")
            addresses = await _fill(site.model)
            await site.start()
            try:
                return await _in_browser(site, addresses, num_times)
            finally:
                await site.stop()
                await database.close()


async def _fill(model: Model) -> dict[str, str]:
    """The history, a job and a study. Returns the addresses of the pages by what they show."""
    async with model.database.connection() as connection:
        await connection.execute(HISTORY)
        await connection.execute("analyze")
    story = Story()
    job = recovery(story)
    study_id = search(story, 12)
    await model.tell(*story.events)
    other = "job_" + str(NUM_JOBS).zfill(26).translate(str.maketrans("0189", "abcd"))
    return {
        "jobs": "/",
        "a job": f"/jobs/{job.job_id}",
        "a study": f"/studies/{study_id}",
        "jobs, a search that finds none": "/?search=nowhere",
        "jobs by best value": "/?metric=validation_accuracy&sort=highest",
        "a comparison": f"/compare?job={job.job_id}&job={other}",
    }


async def _in_browser(site: Site, addresses: dict[str, str], num_times: int) -> list[Row]:
    rows = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for what, address in addresses.items():
            results = [await _load(site, browser, address) for _ in range(num_times)]
            paint = statistics.median(paint for paint, _ in results)
            size = max(size for _, size in results)
            rows += _rows(what, paint, size)
        await browser.close()
    return rows


async def _load(site: Site, browser: Browser, address: str) -> tuple[float, int]:
    """Seconds to the first paint with content, and the bytes of the largest answer."""
    signed_in, _ = await site.sign_in(browser)
    state = await signed_in.storage_state()
    await signed_in.close()
    context = await browser.new_context(storage_state=state)
    page = await context.new_page()
    answer = await page.goto(site.url + address)
    assert answer is not None
    assert answer.ok, (address, answer.status)
    await page.wait_for_timeout(SETTLE_SECONDS * 1000)
    paint, size = await page.evaluate(
        """() => [
            performance.getEntriesByName("first-contentful-paint")[0].startTime / 1000,
            Math.max(...[...performance.getEntriesByType("navigation"),
                ...performance.getEntriesByType("resource")].map((one) => one.encodedBodySize)),
        ]"""
    )
    await context.close()
    return paint, size


def _rows(what: str, paint: float, size: int) -> list[Row]:
    old_paint, old_size = BASELINE.get(what, (MAX_PAINT_SECONDS, MAX_REQUEST_BYTES))
    has_peer = what in BASELINE
    return [
        Row(
            id=f"pages.{what}.paint",
            what=f"{what}: first paint",
            ours=f"{paint:.2f} s",
            peer=f"{old_paint:.2f} s" if has_peer else "",
            ratio=paint / old_paint,
            target=f"at most {MAX_PAINT_SECONDS:g} s",
            met=paint <= MAX_PAINT_SECONDS,
        ),
        Row(
            id=f"pages.{what}.bytes",
            what=f"{what}: largest request",
            ours=f"{size / 1000:.0f} kB",
            peer=f"{old_size / 1000:.0f} kB" if has_peer else "",
            ratio=size / old_size,
            target=f"at most {MAX_REQUEST_BYTES / 1000:.0f} kB",
            met=size <= MAX_REQUEST_BYTES,
        ),
    ]


def main() -> None:
    given = options("pages", "how soon pages show something, with 10,000 jobs")
    if not CHROMIUM.exists():
        skip(f"no Chromium at {CHROMIUM}; install it, or set CHROMIUM")
    os.environ.setdefault("NO_PROXY", "localhost")
    rows = asyncio.run(measure(1 if given.quick else 7))
    publish(rows, given, ("playwright", "fastapi"))


if __name__ == "__main__":
    main()
