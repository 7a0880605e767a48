"""The page of a study in a real browser, and the comparison of jobs."""

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.browser.site import Site
from tests.e2e.browser.test_pages import watch
from tests.handlers.gateway.searches import SearchStory, asha, population, two_objectives
from tests.handlers.gateway.story import Story, search

pytestmark = pytest.mark.browser


async def test_a_study_draws_its_trials_sorts_them_and_overlays_their_curves(
    site: Site, browser: Browser
) -> None:
    story = Story()
    study_id = search(story, 8)
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/studies/{study_id}")
    history = page.get_by_role("img", name="validation_accuracy by trial; the best is 0.954")
    await expect(history).to_be_visible()
    best = await page.evaluate(
        "Chart.getChart(document.querySelector('#history canvas')).data.datasets[1].data"
        ".map(({x, y}) => [x, y])"
    )
    assert best[0] == [0, 0.846]
    assert best[-1] == [6, 0.954]
    assert [y for _, y in best] == sorted(y for _, y in best)
    costs = page.get_by_role("img", name="validation_accuracy against the cost of 7 trials")
    await expect(costs).to_be_visible()
    over = "7 trials over learning_rate, momentum, validation_accuracy"
    await expect(page.get_by_role("img", name=over)).to_be_visible()
    await expect(page.get_by_role("img", name="against momentum")).to_be_visible()

    firsts = page.locator("#trials tbody th")
    await expect(firsts.first).to_contain_text("trial 4")
    await page.get_by_role("button", name="learning_rate").click()
    await expect(firsts.first).to_contain_text("trial 0")
    await page.get_by_role("button", name="learning_rate").click()
    await expect(firsts.first).to_contain_text("trial 7")
    header = page.get_by_role("columnheader", name="learning_rate")
    await expect(header).to_have_attribute("aria-sort", "descending")

    keys = page.locator("#curves .key")
    await expect(keys).to_have_count(5)
    for number in (1, 2):
        await page.get_by_role("checkbox", name=f"Choose trial {number}").check()
    await expect(keys).to_have_count(2)
    await expect(keys.first).to_contain_text("trial")
    await expect(page.locator("#curves figure").first).to_be_visible()
    await page.get_by_role("button", name="Compare the chosen trials").click()
    await expect(page.get_by_role("heading", name="Comparison of 2 jobs")).to_be_visible()
    await expect(page.get_by_role("img", name="loss by step")).to_be_visible()
    lines = await page.evaluate(
        "Chart.getChart(document.querySelector('#curves canvas')).data.datasets.length"
    )
    assert lines == 2
    assert complaints == []
    await context.close()


async def test_a_study_fits_a_phone(site: Site, browser: Browser) -> None:
    story = Story()
    study_id = search(story, 8)
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser, viewport={"width": 390, "height": 844})
    await page.goto(f"{site.url}/studies/{study_id}")
    value = page.locator("#trials tbody tr").first.get_by_text("0.954")
    await value.scroll_into_view_if_needed()
    box = await value.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    await context.close()


async def test_a_search_shows_its_rungs_its_front_and_its_lineage(
    site: Site, browser: Browser
) -> None:
    story = Story()
    stops, two, copies = asha(story, 60), two_objectives(story), population(story)
    for number in (0, 2):
        stops.jobs[number].releases()
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/studies/{stops.study_id}")
    await expect(page.get_by_text("The next free slot gets trial 300")).to_be_visible()
    await expect(page.get_by_role("row", name="10 60")).to_be_visible()
    curves = page.get_by_role("img", name="and the threshold of 3 rungs")
    await expect(curves).to_be_visible()
    costs = page.get_by_role("img", name="the cost of 2 trials; 1 were stopped early")
    await expect(costs).to_be_visible()
    rates = page.get_by_role("progressbar", name="Importance of learning_rate")
    assert float(await rates.get_attribute("value") or 0) > 0.2

    stops.proposes(60, stops.points[0])
    stops.judges(60, 10, 0.5, "stop")
    await site.model.tell(*story.events[-2:])
    await expect(page.get_by_role("row", name="10 61")).to_be_visible()

    await page.goto(f"{site.url}/studies/{two.study_id}")
    await expect(page.get_by_role("img", name="are on the front")).to_be_visible()
    await page.goto(f"{site.url}/studies/{copies.study_id}")
    await expect(page.get_by_role("img", name="8 trials that continue from")).to_be_visible()
    assert complaints == []
    await context.close()


async def test_before_a_trial_has_ended_no_empty_boxes_are_shown(
    site: Site, browser: Browser
) -> None:
    story = Story()
    study = SearchStory(story, "begins")
    study.proposes(0, {"learning_rate": 0.1, "momentum": 0.9})
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    await page.goto(f"{site.url}/studies/{study.study_id}")
    await expect(page.get_by_role("heading", name="Trials", exact=True)).to_be_visible()
    for name in ("History", "Parallel coordinates", "Value against each hyperparameter"):
        await expect(page.get_by_role("heading", name=name, include_hidden=True)).to_be_hidden()
    await context.close()


async def test_trials_that_were_stopped_are_drawn_in_grey_at_their_last_rung(
    site: Site, browser: Browser
) -> None:
    """Also where none has completed yet."""
    story = Story()
    study = SearchStory(story, "stops")
    for number, value in enumerate((0.25, 0.5)):
        study.proposes(number, {"learning_rate": 0.1 + number, "width": 8})
        study.judges(number, 10, value, "stop")
        study.stops(number, 10, value)
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser)
    complaints = watch(page)
    await page.goto(f"{site.url}/studies/{study.study_id}")
    drawn = """[...document.querySelectorAll("#history canvas, #values canvas")].map((canvas) =>
        Chart.getChart(canvas).data.datasets.filter(({ label }) => /^stopped early/.test(label))
            .map(({ data }) => data.map(({ y }) => y)))"""
    await page.wait_for_function(f"{drawn}.length === 3")
    assert await page.evaluate(drawn) == [[[0.25, 0.5]]] * 3
    await expect(page.locator("#parallel g.early")).to_have_count(2)

    study.proposes(2, {"learning_rate": 0.3, "width": 64})
    study.completes(2, 0.75)
    await site.model.tell(*story.events[-4:])
    await expect(page.locator("#parallel g:not(.early)")).to_have_count(1)
    await expect(page.locator("#parallel g.early")).to_have_count(2)
    assert await page.evaluate(drawn) == [[[0.25, 0.5]]] * 3
    assert complaints == []
    await context.close()


async def test_long_values_do_not_push_the_third_job_off_the_screen(
    site: Site, browser: Browser
) -> None:
    """The whole value is in a title; columns of ten jobs scroll in their card."""
    story = Story()
    command = ("python", "train.py", "--data", "s3://" + "very-long-name/" * 40)
    jobs = [
        story.job(f"job-{number}", command=(*command, str(number)), hyperparameters={"n" * 60: 1})
        for number in range(10)
    ]
    await site.model.tell(*story.events)
    context, page = await site.sign_in(browser, viewport={"width": 1400, "height": 1200})
    for num in (3, 10):
        query = "&".join(f"job={job.job_id}" for job in jobs[:num])
        await page.goto(f"{site.url}/compare?{query}")
        third = page.get_by_role("columnheader", name="job-2")
        box = await third.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 1400
        assert await page.evaluate("document.documentElement.scrollWidth") == 1400
    value = page.get_by_role("row").filter(has_text="command").locator("span").nth(2)
    await expect(value).to_have_attribute("title", " ".join((*command, "2")))
    assert (await value.bounding_box() or {})["height"] < 60
    await context.close()
