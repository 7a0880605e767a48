"""Alerts in a real browser: silenced and heard again by the keyboard, live windows on a phone."""

from typing import Any

import pytest
from playwright.async_api import Browser, expect

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.silences import SilenceSet, SilenceSpec
from tests.e2e.browser.site import Site
from tests.e2e.browser.test_pages import watch
from tests.handlers.gateway.story import Story
from tests.handlers.gateway.test_alerts import clears, ended, raises, silenced

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}


def windows(number: int) -> list[dict[str, Any]]:
    """The newest ones have no losses yet."""
    statistics = {"num_finite": 30, "num_not_finite": 1, "deviation": 0.02, "low": 0.3, "high": 0.9}
    return [
        {
            "starts_at": 1_770_000_000 + 30 * at,
            "attempt": 1,
            "steps_per_second": 4.0,
            "slowest_share": 0.612,
            "pods": {"pod_a_1_0": 4.0},
            "num_pods": 2,
            "utilisation_percent": None if at % 2 else 83.4,
            "series": {}
            if at == number - 1
            else {
                "loss": {**statistics, "mean": 0.51 - at / 1000},
                "gradient_norm": {**statistics, "mean": 1.25},
            },
        }
        for at in range(number)
    ]


async def test_an_alert_is_silenced_and_heard_again_by_the_keyboard(
    site: Site, browser: Browser
) -> None:
    story = Story()
    job = story.job("digits", project="vision")
    job.starts()
    await site.model.tell(*story.events)
    made: list[SilenceSpec] = []

    def answer(command: Event[Any]) -> list[Event[Any]]:
        if isinstance(command.payload, SilenceSet):
            made.append(command.payload.spec)
            return [silenced(story, command.payload.spec, command.event_id)]
        return [ended(story, made[-1])]

    site.answer = answer
    context, page = await site.sign_in(browser, viewport=PHONE)
    complaints = watch(page)
    await page.goto(f"{site.url}/alerts")
    still_open = page.locator("#open-alerts")
    await expect(still_open).to_contain_text("No open alerts")
    for link in await page.get_by_role("navigation", name="Main").get_by_role("link").all():
        await expect(link).to_be_in_viewport(ratio=1)

    raises(job)
    await site.model.tell(story.events[-1])
    await expect(still_open).to_contain_text("straggler: something about it")
    alerts = page.get_by_role("navigation").get_by_role("link", name="Alerts")
    await expect(alerts).to_contain_text("1")
    await still_open.get_by_text("Silence", exact=True).first.focus()
    await page.keyboard.press("Enter")
    await still_open.locator("select[name=of]").select_option("project")
    await still_open.locator("select[name=for_seconds]").select_option("28800")
    await still_open.get_by_label("Reason").fill("node-7 is being repaired")
    # What is typed stays when the page is renewed meanwhile.
    await page.locator("h1").click()
    raises(job, AlertKind.STALLED)
    await site.model.tell(story.events[-1])
    await expect(alerts).to_contain_text("2")
    await expect(still_open.locator("details[open] select[name=of]")).to_have_value("project")
    await still_open.locator("details[open]").get_by_label("Reason").press("Enter")
    await expect(still_open).to_contain_text("Silenced until")
    await expect(alerts).to_contain_text("1")  # that of the other one
    assert (made[0].project, made[0].job_id, made[0].alert) == ("vision", None, "straggler")
    silences = page.locator("#silences")
    await expect(silences).to_contain_text("node-7 is being repaired")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]

    await silences.get_by_role("button", name="End the silence of straggler").press("Enter")
    await expect(silences).to_contain_text("None. Silence an alert above")
    clears(job)
    clears(job, AlertKind.STALLED)
    await site.model.tell(*story.events[-2:])
    await expect(still_open).to_contain_text("No open alerts")
    await expect(alerts).to_have_text("Alerts")
    await expect(page.locator("#ended-alerts")).to_contain_text("straggler")
    assert complaints == []
    await context.close()


async def test_a_job_shows_its_alerts_and_its_newest_windows(site: Site, browser: Browser) -> None:
    site.windows = windows(4)
    site.windows[-1] |= {"attempt": 2, "starts_at": site.windows[-2]["starts_at"]}
    story = Story()
    job = story.job("digits")
    job.starts()
    raises(job)
    await site.model.tell(*story.events)
    site.answer = lambda command: [silenced(story, command.payload.spec, command.event_id)]
    context, page = await site.sign_in(browser, viewport=PHONE)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    pace = page.get_by_role("group", name="Pace in the newest windows").get_by_role("row")
    await expect(pace).to_have_count(5)
    await expect(pace.nth(1)).to_contain_text("61.2 %")
    await expect(pace.nth(1)).to_contain_text("attempt 2")
    await expect(pace.nth(2)).not_to_contain_text("attempt")
    series = page.get_by_role("group", name="Losses and gradient norms")
    await expect(series.get_by_role("row").filter(has_text="loss")).to_contain_text("0.508")

    head = page.locator("#head")
    await head.get_by_text("Silence", exact=True).first.click()
    await head.get_by_role("button", name="Silence").click()
    await expect(page).to_have_url(f"{site.url}/jobs/{job.job_id}")
    await expect(head).to_contain_text("Silenced until")
    await expect(page.locator("#timeline")).to_contain_text("straggler of this job")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]
    assert complaints == []
    await context.close()
