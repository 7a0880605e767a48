"""Every page with axe-core: no serious finding, on a screen and on a phone, light and dark; and the
charts by the keyboard alone."""

from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from drivetrain_schemas.jobs import JobFailed
from drivetrain_schemas.metrics import AlertKind
from tests.e2e.browser.site import Site
from tests.e2e.browser.test_alerts import windows
from tests.handlers.gateway.searches import asha, population, two_objectives
from tests.handlers.gateway.story import Story, recovery, search
from tests.handlers.gateway.test_alerts import raises, silenced, spec
from tests.handlers.gateway.test_budgets import changed, reached
from tests.handlers.gateway.test_cost_page import report

pytestmark = pytest.mark.browser

LOOKS: tuple[dict[str, Any], ...] = (
    {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
)


async def findings(page: Page, axe: str) -> list[str]:
    """What axe-core finds serious or critical."""
    await page.evaluate(axe)
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


async def filled(site: Site) -> list[str]:
    """A site with something of everything. Returns its addresses."""
    site.other_series = ("val_loss", "validation_accuracy")
    site.log = ("step 1", "ValueError: no")
    site.report = report()
    site.budgets = [{"name": "vision", "reached_percent": 80, "spent_micro_usd": 450_000_000}]
    await site.model.tell(changed(), reached(80))
    site.windows = windows(6)
    story = Story()
    story.nodes("node-1", "node-2")
    study_id = search(story, 6)
    searches = (asha(story, 40), population(story), two_objectives(story, 20))
    job = recovery(story)
    raises(job)
    raises(job, AlertKind.SLOWER)
    silenced(story, spec(alert=AlertKind.SLOWER, reason="a shared node"))
    failed = story.job("fails", tags=["vision"])
    failed.starts()
    failed.fails()
    story.tell(JobFailed(job_id=failed.job_id, attempts=1, detail="no", finished_at=story.now))
    story.job("waits", resources={"devices": 8}).waits()
    done = story.job("classifier-of-digits", project="vision-of-the-next-year")
    done.starts()
    done.succeeds()
    await site.model.tell(*story.events)
    parked_id = await site.model.park(b"{")
    return [
        "/",
        f"/jobs/{job.job_id}",
        f"/jobs/{failed.job_id}?events=all",
        f"/jobs/{job.job_id}/files",
        f"/compare?job={job.job_id}&job={failed.job_id}",
        "/studies",
        f"/studies/{study_id}",
        *(f"/studies/{study.study_id}" for study in searches),
        "/nodes",
        "/costs?month=2026-02",
        "/fleet?first=2026-02-01&last=2026-02-02",
        "/fleet?step=day&by=job&first=2026-02-01&last=2026-02-28",
        "/alerts",
        "/parked",
        f"/parked/{parked_id}",
        "/jobs/job_" + "a" * 26,
    ]


# The names of jobs that reach below the state beside them.
COVERED = """[...document.querySelectorAll("table.jobs tbody tr")].filter((row) => {
  const name = row.querySelector("th").getBoundingClientRect();
  return name.right > row.querySelector(".state").getBoundingClientRect().left;
}).map((row) => row.textContent)"""


@pytest.mark.heavy
@pytest.mark.parametrize("look", LOOKS, ids=["screen", "dark phone"])
async def test_no_page_has_a_serious_finding(
    site: Site, browser: Browser, axe: str, look: dict[str, Any]
) -> None:
    addresses = await filled(site)
    context, page = await site.sign_in(browser, **look)
    found = {}
    for address in addresses:
        await page.goto(site.url + address)
        curves = page.locator("#curves figure")
        if await page.locator("#curves").count():
            await expect(curves.first).to_be_visible()
        for silence in await page.locator("details.silence summary").all():
            await silence.click()
        serious = await findings(page, axe)
        if serious:
            found[address] = serious
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= look["viewport"]["width"], address
        assert await page.evaluate(COVERED) == [], address
    assert found == {}
    await context.close()


async def test_a_chart_is_chosen_and_zoomed_by_the_keyboard(site: Site, browser: Browser) -> None:
    addresses = await filled(site)
    context, page = await site.sign_in(browser)
    await page.goto(site.url + addresses[1])
    await expect(page.locator("#curves figure")).to_have_count(3)
    await page.locator("#curves summary").focus()
    await page.keyboard.press("Enter")
    for _ in range(4):  # the filter, the button to clear, the first and the second box
        await page.keyboard.press("Tab")
    await page.keyboard.press("Space")
    await expect(page.locator("#curves figure")).to_have_count(2)
    await page.keyboard.press("Escape")
    await expect(page.locator("#curves summary")).to_be_focused()
    await page.get_by_role("button", name="Zoom in").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Whole range")).to_be_enabled()
    await context.close()
