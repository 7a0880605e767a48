"""The section Media of a job's page: a slider by step, and content that stays content."""

import hashlib
import json
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from drivetrain import png
from tests.e2e.browser.site import Site
from tests.e2e.browser.test_pages import watch
from tests.handlers.gateway.story import JobStory, Story

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}}
HOSTILE = "<img src=x onerror=\"document.title='caught'\">"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload=\"document.title='caught'\"/>"
HTML = b"<html><script>document.title='caught'</script></html>"
TABLE = json.dumps({"columns": ["text", "score"], "rows": [[HOSTILE, 0.25]]}).encode()
COUNTS = {"low": -1.0, "high": 1.0, "counts": [1, 5, 2], "num_values": 9, "num_counted": 8}


def grey(value: int, width: int = 40) -> bytes:
    return png.encode(bytes([value]) * width * 20, width, 20, 1)


async def started(site: Site) -> JobStory:
    story = Story()
    job = story.job("digits")
    job.starts()
    await site.model.tell(*story.events)
    return job


async def put(site: Site, job: JobStory, media: str, name: str, step: int, content: bytes,
              **fields: Any) -> None:  # fmt: skip
    digest = hashlib.sha256(content).hexdigest()
    assert site.http is not None
    await site.http.objects.put(f"media/default/{job.job_id}/{digest}", content)
    site.media.append(
        {
            "name": name, "step": step, "item": 0, "attempt": 1, "media": media,
            "image_form": "png" if media == "image" else None, "sha256": digest,
            "size_bytes": len(content), "caption": "", "file_name": None,
            "logged_at": "2026-01-01T00:00:00Z", **fields,
        }
    )  # fmt: skip


async def test_a_slider_goes_through_the_steps_by_keyboard_on_a_phone(
    site: Site, browser: Browser
) -> None:
    job = await started(site)
    for step, value in ((10, 0), (200, 128), (3000, 255)):
        await put(site, job, "image", "predictions", step, grey(value, 40 + step % 7),
                  caption=f"caption of {step}")  # fmt: skip
    await put(site, job, "image", "wide", 1, grey(9, 2000))
    context, page = await site.sign_in(browser, **PHONE)
    complaints = watch(page)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    section = page.get_by_role("region", name="predictions")
    slider, image = section.get_by_role("slider"), section.locator("img")
    await expect(image).to_have_attribute("alt", "caption of 3000")
    await expect(section.get_by_text("step 3,000 · 3 of 3")).to_be_visible()
    await slider.press("ArrowLeft")
    await expect(image).to_have_attribute("alt", "caption of 200")
    await slider.press("Home")
    await expect(image).to_have_attribute("alt", "caption of 10")
    assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 43
    assert await slider.get_attribute("aria-valuetext") == "step 10"
    assert await page.get_by_role("region", name="wide").get_by_role("slider").count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert complaints == []
    await context.close()


async def test_new_steps_appear_while_the_job_runs_and_a_chosen_step_stays(
    site: Site, browser: Browser
) -> None:
    job = await started(site)
    await put(site, job, "text", "said", 1, b"one")
    await put(site, job, "text", "said", 2, b"two")
    context, page = await site.sign_in(browser)
    await page.clock.install()
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    section = page.get_by_role("region", name="said")
    await expect(section.locator("pre")).to_have_text("two")
    await put(site, job, "text", "said", 3, b"three")
    await page.clock.run_for(12_000)
    await expect(section.locator("pre")).to_have_text("three")
    await section.get_by_role("slider").press("Home")
    await expect(section.locator("pre")).to_have_text("one")
    await put(site, job, "text", "said", 4, b"four")
    await page.clock.run_for(12_000)
    await expect(section.get_by_text("1 of 4")).to_be_visible()
    await expect(section.locator("pre")).to_have_text("one")
    await context.close()


async def test_nothing_that_a_program_logged_runs_in_the_page(site: Site, browser: Browser) -> None:
    job = await started(site)
    await put(site, job, "image", HOSTILE, 1, SVG, caption=HOSTILE)
    await put(site, job, "image", "as a page", 1, HTML)
    await put(site, job, "text", "text", 1, HTML)
    await put(site, job, "table", "table", 1, TABLE)
    await put(site, job, "histogram", "weights", 1, json.dumps(COUNTS).encode())
    await put(site, job, "file", "page.html", 1, HTML, file_name="page.html")
    context, page = await site.sign_in(browser)
    await page.goto(f"{site.url}/jobs/{job.job_id}")
    media = page.locator("#media")
    await expect(media.get_by_role("heading", name=HOSTILE)).to_be_visible()
    await expect(media.locator("pre")).to_have_text(HTML.decode())
    await expect(media.locator("td").first).to_have_text(HOSTILE)
    await expect(media.locator("rect")).to_have_count(3)
    await expect(media.get_by_text("8 of 9 values")).to_be_visible()
    title = await page.title()
    assert "caught" not in title
    # Also opened by itself, as a page: it is what it is said to be, or it is downloaded.
    for name in (HOSTILE, "as a page", "text"):
        link = media.get_by_role("region", name=name, exact=True).get_by_role("link")
        address = await link.get_attribute("href")
        alone = await context.new_page()
        await alone.goto(str(address).replace("http://localhost:8480", site.url))
        assert "caught" not in await alone.title()
        assert await alone.evaluate("document.querySelector('script')") is None
    async with page.expect_download() as download:
        await media.get_by_role("region", name="page.html").get_by_role("link").click()
    assert (await download.value).suggested_filename == "page.html"
    await context.close()
