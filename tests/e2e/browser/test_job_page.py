"""The page of one job in a real browser: what is above the fold, charts, logs, hidden tabs."""

import asyncio
import math
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from drivetrain_schemas.jobs import JobFailed
from services.gateway.rest.models import Run
from tests.e2e.browser.site import Site
from tests.e2e.browser.test_pages import watch
from tests.handlers.gateway.story import JobStory, Story
from tests.handlers.gateway.test_files import newest_list, put_list
from tests.handlers.gateway.test_job_page import warn

pytestmark = pytest.mark.browser

ERROR = "ValueError: Expected input batch_size (64) to match target batch_size (32)."
PHONE = {"viewport": {"width": 390, "height": 844}}
FIRST_CHART = "Chart.getChart(document.querySelector('#curves canvas'))"


async def running(site: Site) -> JobStory:
    """A job that is running its second attempt, resumed at step 100."""
    story = Story()
    story.nodes("node-1")
    job = story.job("digits", hyperparameters={"learning_rate": 0.05, "batch_size": 64})
    job.starts()
    saved = job.saves(100)
    job.fails()
    job.starts()
    job.resumes(saved, 100)
    job.beats(150)
    await site.model.tell(*story.events)
    return job


async def shown_runs(site: Site, job: JobStory) -> list[Run]:
    assert site.http is not None
    answer = (await site.http.client.get(f"/v1/jobs/{job.job_id}")).json()
    return [Run.model_validate(run) for run in answer["runs"]]


async def ask(page: Page, script: str) -> Any:
    return await page.evaluate(script)


async def test_a_failed_job_tells_its_error_id_and_command_above_the_fold(
    site: Site, browser: Browser
) -> None:
    story = Story()
    job = story.job("digits", hyperparameters={"learning_rate": 0.05})
    job.starts()
    job.fails(f"Traceback (most recent call last):\n{ERROR}", signal=None)
    failed = JobFailed(job_id=job.job_id, attempts=1, detail=ERROR, finished_at=story.now)
    story.tell(failed)
    warn(story, job, 1, f"'{'x' * 200}' is not the name of a metric")
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser, **PHONE)
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    head = page.locator("#head")
    for text in (ERROR, "Traceback", job.job_id, "python train.py", "learning_rate"):
        box = await head.get_by_text(text).first.bounding_box()
        assert box is not None, text
        assert box["y"] + box["height"] < 844, text
    await head.get_by_role("button", name="Copy the id of the job").click()
    assert await ask(page, "navigator.clipboard.readText()") == job.job_id
    assert await ask(page, "document.documentElement.scrollWidth") == 390
    await context.close()


async def test_the_judged_metric_and_losses_come_first_of_many_series(
    site: Site, browser: Browser
) -> None:
    site.other_series = (*(f"a/layer_{n}" for n in range(60)), "validation_accuracy", "val_loss")
    job = await running(site)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    captions = page.locator("#curves figcaption span")
    await expect(captions).to_have_count(6)
    first = ["validation_accuracy", "loss", "val_loss"]
    assert (await captions.all_text_contents())[:3] == first
    await page.locator("#curves summary").click()
    await page.get_by_role("searchbox", name="Filter series by name").fill("layer_59")
    await page.get_by_role("checkbox", name="a/layer_59").check()
    await expect(page.get_by_text("7 samples were left out")).to_be_visible()
    await expect(captions).to_have_count(7)
    assert (await captions.all_text_contents())[-1] == "a/layer_59"
    assert complaints == []
    await context.close()


async def test_charts_are_exact_mark_attempts_and_read_a_zoomed_range_again(
    site: Site, browser: Browser
) -> None:
    job = await running(site)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    await expect(page.get_by_role("img", name="loss by step")).to_be_visible()
    marks = await ask(
        page, f"{FIRST_CHART}.options.plugins.marks.at.map(({{x, text}}) => [x, text])"
    )
    assert marks == [[100, "attempt 2"]]
    label = await ask(
        page,
        f"""(() => {{ const chart = {FIRST_CHART};
        chart.tooltip.setActiveElements([{{datasetIndex: 0, index: 7}}], {{x: 0, y: 0}});
        chart.update();
        return [...chart.tooltip.title, ...chart.tooltip.body[0].lines]; }})()""",
    )
    assert label == ["step 7", f" loss: {2.3 * math.exp(-7 / 60)}"]
    await page.get_by_role("button", name="Zoom in").click()
    await expect(page.get_by_role("button", name="Whole range")).to_be_enabled()
    zoomed = await ask(page, f"(({{min, max}}) => [min, max])({FIRST_CHART}.scales.x)")
    assert zoomed == [49, 150]
    highest = re.compile(f"highest {2.3 * math.exp(-49 / 60)}")
    await expect(page.get_by_role("img", name=highest)).to_be_visible()
    asked = [given for path, given in site.asked if path == "/chart" and given["to_step"]]
    assert (asked[0]["from_step"], asked[0]["to_step"]) == (49, 150)
    await page.get_by_label("log scale").check()
    assert await ask(page, f"{FIRST_CHART}.scales.y.type") == "logarithmic"
    ticks = await ask(
        page,
        f"""(() => {{ const chart = {FIRST_CHART}, write = (type, values) => {{
          chart.options.scales.y.type = type;
          chart.data.datasets[0].data = values.map((y, x) => ({{x: x + 60, y}}));
          chart.update();
          return chart.scales.y.ticks.map(({{label}}) => label); }};
        return [write("logarithmic", [1e-5, 1e-4]), write("linear", [1.5e-5, 3e-5])]; }})()""",
    )
    for labels in ticks:
        assert "2e-5" in labels
        assert all(len(label) <= 7 for label in labels), "not 5.000000E-5"
    await page.get_by_label("Smoothing").fill("0.9")
    assert await ask(page, f"{FIRST_CHART}.data.datasets.length") == 2
    assert complaints == []
    await context.close()


@pytest.mark.parametrize("is_reported", [True, False])
async def test_the_time_of_samples_is_that_of_their_steps(
    site: Site, browser: Browser, is_reported: bool
) -> None:
    """Attempts without reported times spread their steps evenly, as does the second one here."""
    job = await running(site)
    began = [run.started_at.timestamp() for run in await shown_runs(site, job)]
    length = began[1] - began[0]
    times = [began[0] + share * length for share in (0.1, 0.6, 0.7)]
    site.times = ({"attempt": 1, "steps": [0, 50, 99], "times": times},) if is_reported else ()
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    await page.locator("[data-part=axis]").select_option("time")
    await expect(page.get_by_role("img", name="loss by time")).to_be_visible()
    x = await ask(page, f"{FIRST_CHART}.data.datasets[0].data.map((point) => point.x)")
    if is_reported:
        wanted = [share * length for share in (0.1, 0.35, 0.6)]
        assert (x[0], x[25], x[50]) == pytest.approx(wanted, abs=0.001)
    else:
        assert x[0] == 0
    assert x[100] == pytest.approx(length, abs=0.01)
    assert x == sorted(x)
    assert complaints == []
    await context.close()


async def test_files_of_a_job_are_listed_and_downloaded(site: Site, browser: Browser) -> None:
    job = await running(site)
    await put_list(site.http, job, newest_list(job), model=b"weights")
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    await page.get_by_role("link", name="Files of the job").click()
    async with page.expect_download() as waiting:
        await page.get_by_role("link", name="dir/model").click()
    content = await asyncio.to_thread((await (await waiting.value).path()).read_bytes)
    assert content == b"weights"
    assert complaints == []
    await context.close()


async def test_logs_are_searched_and_downloaded_and_show_the_error(
    site: Site, browser: Browser
) -> None:
    lines = [f"step {step} loss {step / 7}" for step in range(3000)]
    lines[900:900] = ["Traceback (most recent call last):", "  File train.py", ERROR]
    site.log = tuple(lines)
    job = await running(site)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    logs = page.locator("#logs")
    await expect(logs.get_by_text("step 2999 loss")).to_be_visible()
    await logs.get_by_role("searchbox").fill("step 29")
    await expect(logs.get_by_text("100 of 100")).to_be_visible()
    await logs.get_by_role("searchbox").press("Enter")
    await expect(logs.get_by_text("1 of 100", exact=True)).to_be_visible()
    await expect(logs.get_by_text("step 2900 loss")).to_be_in_viewport()
    await logs.get_by_role("button", name="Jump to error").click()
    await expect(logs.get_by_text("Traceback (most recent")).to_be_in_viewport()
    async with page.expect_download() as waiting:
        await logs.get_by_role("link", name="Download").click()
    text = await asyncio.to_thread((await (await waiting.value).path()).read_text)
    assert text == "".join(f"a1 r1 | {line}\n" for line in lines)
    assert complaints == []
    await context.close()


@pytest.mark.heavy
async def test_hidden_tabs_leave_their_connections_to_the_one_that_is_shown(
    site: Site, browser: Browser
) -> None:
    """A browser has six connections to a server; each stream would hold one."""
    job = await running(site)
    context, _ = await site.sign_in(browser)
    await context.add_init_script(
        """window.isHidden = false;
        Object.defineProperty(document, "hidden", { get: () => window.isHidden });
        window.show = (isShown) => {
            window.isHidden = !isShown;
            document.dispatchEvent(new Event("visibilitychange"));
        };"""
    )
    tabs = []
    for _ in range(6):
        tab = await context.new_page()
        await tab.goto(f"{site.url}/jobs/{job.job_id}")
        await expect(tab.get_by_role("status").filter(has_text="live")).to_be_attached()
        tabs.append(tab)
        await tab.evaluate("window.show(false)")
    seventh = await context.new_page()
    await seventh.goto(f"{site.url}/jobs/{job.job_id}")
    await expect(seventh.get_by_role("status").filter(has_text="live")).to_be_attached()

    told = len(job.story.events)
    job.succeeds()
    await site.model.tell(*job.story.events[told:])
    await expect(seventh.locator("#head")).to_contain_text("succeeded")
    await expect(tabs[0].locator("#head")).to_contain_text("running")
    await tabs[0].evaluate("window.show(true)")
    await expect(tabs[0].locator("#head")).to_contain_text("succeeded")
    await context.close()


async def test_what_each_pod_uses_is_a_line_and_opened_its_charts(
    site: Site, browser: Browser
) -> None:
    site.used = {
        0: {"system/cpu_percent": 187.25, "system/memory_bytes": 2.5e9,
            "system/device_0_utilisation_percent": 91.0, "system/disk_read_bytes_per_s": 3e6},
        4: {"system/cpu_percent": 12.0},
    }  # fmt: skip
    job = await running(site)
    context, page = await site.sign_in(browser, **PHONE)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    pods = page.locator("#system details")
    await expect(pods).to_have_count(2)
    line = "rank 0 device 0 utilisation 91 % · CPU 187.3 % · memory 2.5 GB"
    await expect(pods.first.locator("summary")).to_have_text(line)
    await pods.nth(1).locator("summary").press("Enter")
    await expect(pods.nth(1).get_by_role("img", name="CPU by time")).to_be_visible()
    ticks = "Chart.getChart(document.querySelector('#system canvas')).scales.y.ticks"
    assert (await ask(page, f"{ticks}.at(-1).label")).endswith(" %")
    asked = [given for path, given in site.asked if path == "/chart" and given["rank"] == 4]
    assert asked[0]["name"] == ["system/cpu_percent"]
    assert await ask(page, "document.documentElement.scrollWidth") == 390
    assert complaints == []
    await context.close()


async def test_all_lines_are_searched_and_only_matches_are_shown_and_followed(
    site: Site, browser: Browser
) -> None:
    """Each request searches some lines only; the page goes on until it has enough."""
    site.log = tuple(f"{'error: lost' if n % 500 == 7 else 'step'} {n}" for n in range(2000))
    job = await running(site)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    logs = page.locator("#logs")
    lines = logs.locator("pre > div")
    await expect(lines).to_have_count(500)
    await logs.get_by_label("From level").select_option("error")
    await expect(lines).to_have_count(4)
    await expect(logs.get_by_text("4 lines; searched all 2,000")).to_be_visible()
    site.log += ("step 2000", "error: lost again")
    await expect(lines).to_have_count(5, timeout=10_000)
    await logs.get_by_label("From level").select_option("all")
    await logs.get_by_label("only matches").check()
    await logs.get_by_role("searchbox").fill("LOST 507")
    await expect(lines).to_have_text([re.compile("error: lost 507")])
    async with page.expect_response(lambda answer: "since=" in answer.url):
        await logs.get_by_label("Arrived").select_option("last 10 min")
    since = [given["since"] for path, given in site.asked if path == "/logs"][-1]
    assert 0 < (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() < 3600
    await expect(lines).to_have_text([re.compile("error: lost 507")])
    assert complaints == []
    await context.close()


async def test_the_columns_end_together_and_the_buttons_stand_together(
    site: Site, browser: Browser
) -> None:
    """Also with more events than the page is high: the timeline scrolls."""
    story = Story()
    story.nodes("node-1")
    job = story.job("digits")
    job.starts()
    context, page = await site.sign_in(browser, viewport={"width": 1400, "height": 1200})
    for num_failed in (0, 20):
        for _ in range(num_failed):
            job.fails()
            job.starts()
        await site.model.tell(*story.events)
        await page.goto(f"{site.url}/jobs/{job.job_id}")
        await expect(page.get_by_role("img", name="loss by step")).to_be_visible()
        await expect(page.get_by_role("log")).to_contain_text("epoch 1")
        ends = await page.evaluate(
            "[...document.querySelectorAll('.columns > *')].map((column) =>"
            " column.lastElementChild.getBoundingClientRect().bottom)"
        )
        assert len(ends) == 2
        assert abs(ends[0] - ends[1]) < 1
    gap = await page.evaluate(
        """(() => {
          const [first, second] = document.querySelectorAll("#head .title form");
          return second.getBoundingClientRect().left - first.getBoundingClientRect().right;
        })()"""
    )
    assert 0 < gap < 12
    await context.close()
