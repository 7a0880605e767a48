"""What is shown of a search: its trials by number, and in which order their page has them."""

from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.story import Story, search


async def test_all_trials_are_listed_by_number_page_after_page(model: Model) -> None:
    story = Story()
    study_id = search(story, 6)
    await model.tell(*story.events)
    path = f"/v1/studies/{study_id}/trials"
    async with serving(model) as server:
        first = (await server.client.get(f"{path}?limit=4")).json()
        second = (await server.client.get(f"{path}?limit=4&after={first['next']}")).json()
        wrong = await server.client.get(f"{path}?after=x")
        unknown = await server.client.get(path.replace(study_id, "study_" + "a" * 26))
    numbers = [trial["number"] for trial in first["trials"] + second["trials"]]
    assert numbers == [0, 1, 2, 3, 4, 5]
    assert second["next"] is None
    ended = first["trials"][0]
    assert (ended["state"], ended["job_state"], ended["values"]) == (
        *("completed", "succeeded"),
        [ended["value"]],
    )
    assert ended["charged_micro_usd"] > 0
    assert second["trials"][-1]["state"] == "proposed"
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "after")
    assert unknown.status_code == 404
