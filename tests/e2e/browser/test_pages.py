"""The pages in a real browser: live updates, a server restart, and a replay."""

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.browser.site import Site
from tests.handlers.gateway.story import Story
from tests.handlers.gateway.test_budgets import changed, reached
from tests.handlers.gateway.test_cost_page import report

pytestmark = pytest.mark.browser

KEEPS = "window.isTheSamePage = true"
KEPT = "window.isTheSamePage === true"


def watch(page: Page) -> list[str]:
    """Errors in the browser: scripts, styles and requests that the policy refuses."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    return complaints


async def test_the_list_of_jobs_follows_a_job(site: Site, browser: Browser) -> None:
    story = Story()
    story.nodes("node-1")
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(site.url)
    await expect(page.get_by_text("No jobs yet")).to_be_visible()
    await page.evaluate(KEEPS)

    job = story.job("digits")
    await site.model.tell(story.events[-1])
    row = page.get_by_role("row").filter(has_text="digits")
    await expect(row.get_by_text("queued")).to_be_visible()

    job.starts()
    await site.model.tell(*story.events[-3:])
    await expect(row.get_by_text("running")).to_be_visible()
    await expect(page.locator("#tiles")).to_contain_text("2 of 2")
    await site.model.tell(story.tell(job.beat(0)), story.tell(job.beat(100)))
    await expect(row.get_by_text("100 of 400 steps")).to_be_visible()
    bar = row.get_by_role("progressbar")
    await expect(bar).to_have_js_property("value", 0.25)

    job.succeeds()
    await site.model.tell(*story.events[-4:])
    await expect(row.get_by_text("succeeded")).to_be_visible()
    await expect(row.get_by_text("0.981")).to_be_visible()
    assert await page.evaluate(KEPT)
    assert complaints == []
    await context.close()


async def test_times_are_shown_in_whole_seconds_and_huge_numbers_in_short(
    site: Site, browser: Browser
) -> None:
    context, page = await site.sign_in(browser)
    await page.goto(site.url)
    shown = await page.evaluate(
        """async () => {
          const { times } = await import("/static/format.js");
          return [1, 7.4, 59.5, 61, 3700].map((age) => {
            const time = document.createElement("time");
            time.dataset.relative = "";
            time.dateTime = new Date(Date.now() - 1000 * age).toISOString();
            const root = document.createElement("p");
            root.append(time);
            times(root);
            return time.textContent;
          });
        }"""
    )
    assert shown == ["just now", "7 s ago", "59 s ago", "1 min ago", "1 h ago"]
    shown = await page.evaluate(
        """async () => {
          const { number, exact } = await import("/static/format.js");
          return [1234, 2 ** 53 - 1, 1e300, -1.5e300].map((x) => [number(x), exact(x)]);
        }"""
    )
    largest = "9,007,199,254,740,991"
    assert shown[:2] == [["1,234", "1,234"], [largest, largest]]
    assert shown[2:] == [["1e+300", "1e+300"], ["-1.5e+300", "-1.5e+300"]]
    await context.close()


async def test_the_page_of_a_job_continues_after_a_server_restart(
    site: Site, browser: Browser
) -> None:
    story = Story()
    story.nodes("node-1")
    job = story.job("digits")
    job.starts()
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    await page.evaluate(KEEPS)
    await expect(page.get_by_role("img", name="loss by step")).to_be_visible()
    await expect(page.locator("figure")).to_contain_text("at step 199")
    await expect(page.get_by_role("log")).to_contain_text("epoch 1 <b>done</b>")
    await expect(page.locator("#head")).to_contain_text("$1.50")
    timeline = page.locator("#timeline")
    await expect(timeline).to_contain_text("Attempt 1 is running: all pods have started")
    assert complaints == []

    await site.stop()
    await expect(page.get_by_role("status").filter(has_text="reconnecting")).to_be_visible()
    told = len(story.events)
    checkpoint_id = job.saves(100)
    job.fails("terminated by signal 9")
    await site.model.tell(*story.events[told:])
    site.num_steps = 260
    await site.start()
    await expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    await expect(timeline).to_contain_text("Attempt 1 failed: rank 1 was killed by SIGKILL")
    told = len(story.events)
    job.starts()
    job.resumes(checkpoint_id, 100)
    await site.model.tell(*story.events[told:])
    await expect(timeline).to_contain_text("Attempt 2 resumed at step 100")
    await expect(page.locator("#checkpoints")).to_contain_text("resumed by attempt 2")
    await expect(page.locator("figure")).to_contain_text("at step 259")
    assert await page.evaluate(KEPT)
    await context.close()


async def test_a_parked_record_is_shown_with_its_bytes_and_replayed(
    site: Site, browser: Browser
) -> None:
    assert site.http is not None
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/parked")
    await expect(page.get_by_text("Nothing is parked")).to_be_visible()
    value = b'{"name": "<script>alert(1)</script>", "name": 2}'
    await site.model.park(value)
    await page.locator(".row-parked").get_by_role("link", name="not json").click()
    await expect(page.locator("pre").first).to_have_text(value.decode())
    await page.get_by_role("button", name="Replay").click()
    await expect(page.get_by_role("status").filter(has_text="Replayed")).to_be_visible()
    (record,) = site.http.bus.records("drivetrain.commands.jobs")
    assert (record.key, record.value) == (b"key", value)
    await expect(page).to_have_url(re.compile(r"/parked/parked_\w+$"))
    assert complaints == []
    await context.close()


async def test_costs_by_owner_and_month(site: Site, browser: Browser) -> None:
    """By the keyboard, and on a phone's width without anything beside the page."""
    site.report = report()
    site.budgets = [{"name": "vision", "reached_percent": 80, "spent_micro_usd": 450_000_000}]
    await site.model.tell(changed(), reached(80))
    context, page = await site.sign_in(browser, viewport={"width": 390, "height": 844})
    complaints = watch(page)
    await page.goto(f"{site.url}/costs?month=2026-02")
    await expect(page.locator("svg.fleet rect")).to_have_count(6)
    await expect(page.get_by_role("row").filter(has_text="vision")).to_contain_text("$50.00")
    await expect(page.locator("#budgets + ul")).to_contain_text("90 %")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390

    await page.get_by_text("Slot hours of each day", exact=True).focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row").filter(has_text="2026-02-03")).to_contain_text("10.0")
    await page.get_by_role("link", name="By study").press("Enter")
    await expect(page).to_have_url(f"{site.url}/costs?month=2026-02&by=study")
    assert site.asked[-2][1]["by"] == "study"
    await page.get_by_role("link", name="Month before").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Costs of January 2026")
    assert complaints == []
    await context.close()
