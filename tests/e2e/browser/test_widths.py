"""Every page at the width of a screen and of a phone: empty, filled, and with 10,000 jobs of which
all names are long. Nothing is wider than the window, and no text covers another one."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from services.gateway.live import Live
from services.standalone.ports import free_port
from tests.conftest import OpenDatabase
from tests.costs.gateway.world import LONG_STUDY, history, job
from tests.e2e.browser.site import Site
from tests.e2e.browser.test_accessibility import filled

pytestmark = pytest.mark.browser

PLACES = ("/", "/studies", "/nodes", "/costs?month=2026-02", "/fleet?last=2026-02-02", "/alerts",
          "/parked")  # fmt: skip
NUM_JOBS = 10_000
LONG = "update requests set name = name || repeat('-and-so-on', 10)"

# What reaches out of the window, but for what scrolls in a box of its own; and words and controls
# that lie on each other, line by line.
FAULTS = """() => {
  const found = [], text = (one) => one.outerHTML.slice(0, 90);
  const shown = (one) => one.checkVisibility() && !one.closest(".hidden, .skip");
  for (const one of document.querySelectorAll("main *")) {
    if (!shown(one) || one.closest(".scroll, pre, svg")) continue;
    const box = one.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`out: ${text(one)}`);
  }
  const words = "main :is(a, button, h1, h2, .state, time, code, dt, dd, small)";
  const leaves = [...document.querySelectorAll(words)].filter((one) =>
    shown(one) && !one.children.length && !one.closest(".timeline, .compare-bar"));
  const lines = leaves.flatMap((one) => [...one.getClientRects()].map((box) => [one, box]));
  const shared = (low, high, a, b) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]);
  lines.forEach(([one, a], at) => lines.slice(at + 1, at + 15).forEach(([other, b]) => {
    const isOver = shared("left", "right", a, b) > 2 && shared("top", "bottom", a, b) > 4;
    if (one !== other && isOver) found.push(`over: ${text(one)} ${text(other)}`);
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""


async def faults(site: Site, browser: Browser, addresses: list[str]) -> dict[str, list[str]]:
    found = {}
    for width in (390, 1400):
        context, page = await site.sign_in(browser, viewport={"width": width, "height": 1000})
        for address in addresses:
            await page.goto(site.url + address)
            if wrong := await page.evaluate(FAULTS):
                found[f"{width} {address}"] = wrong[:5]
        await context.close()
    return found


@pytest.mark.heavy
async def test_pages_without_and_with_something_of_everything(site: Site, browser: Browser) -> None:
    assert await faults(site, browser, list(PLACES)) == {}
    assert await faults(site, browser, await filled(site)) == {}


@pytest.mark.heavy
async def test_pages_of_ten_thousand_jobs(
    database: OpenDatabase, assets: Path, browser: Browser
) -> None:
    model = await history(database, NUM_JOBS)
    model.live = Live()
    async with model.database.connection() as connection:
        await connection.execute(LONG)
    site = Site(model, free_port(), assets)
    await site.start()
    jobs = "&".join(f"job={job(number)}" for number in range(10))
    of_jobs = [f"/jobs/{job(NUM_JOBS)}", f"/compare?{jobs}", f"/studies/{LONG_STUDY}"]
    more = ["/?group=no", "/?search=and-so-on", *of_jobs]
    assert await faults(site, browser, [*PLACES, *more]) == {}
    await site.stop()
