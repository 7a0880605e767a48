"""Names, and the beginnings of ids, in the place of ids: by the command line on a real gateway."""

import json

from tests.handlers.gateway.command_line import drivetrain, on_a_port
from tests.handlers.gateway.model import Model, serving
from tests.handlers.gateway.story import JobStory, Story, search, spec


async def test_jobs_studies_and_checkpoints_are_found_by_what_people_write(model: Model) -> None:
    story = Story()
    story.nodes("node-a")
    older, newer = (
        JobStory(story, request_id, spec("digits"), None) for request_id in ("one", "two")
    )
    newer.starts()
    newer.beats(100)
    checkpoint_id = newer.saves(100)
    study_id = search(story)
    await model.tell(*story.events)
    async with serving(model) as server:
        for text, want in (
            ("digits", [newer.job_id, older.job_id]),
            (older.job_id, [older.job_id]),
            (older.job_id[4:12], [older.job_id]),
            (f"job_{older.job_id[4:10]}", [older.job_id]),
            ("digit", []),
            (checkpoint_id, []),
            ("%", []),
        ):
            answer = await server.client.get("/v1/ids", params={"kind": "job", "text": text})
            assert [one["id"] for one in answer.json()["ids"]] == want, text
        async with on_a_port(server) as environment:
            for what, text, want_id in (
                ("job", "digits", newer.job_id),
                ("job", older.job_id[4:12], older.job_id),
                ("study", "latest", study_id),
                ("study", study_id[6:14], study_id),
            ):
                shown = await drivetrain(environment, what, "show", text, "-o", "json")
                assert json.loads(shown)[f"{what}_id"] == want_id
            found = await server.client.get(
                "/v1/ids", params={"kind": "checkpoint", "text": checkpoint_id[5:13]}
            )
            assert [one["id"] for one in found.json()["ids"]] == [checkpoint_id]


async def test_studies_are_filtered_by_state_and_name(model: Model) -> None:
    story = Story()
    study_id = search(story)
    await model.tell(*story.events)
    async with serving(model) as server:
        shown = (await server.client.get(f"/v1/studies/{study_id}")).json()
        for query, want in (
            ({"state": "running"}, [study_id]),
            ({"state": "completed"}, []),
            ({"name": shown["name"]}, [study_id]),
            ({"name": "other", "state": "running"}, []),
        ):
            listed = (await server.client.get("/v1/studies", params=query)).json()["studies"]
            assert [one["study_id"] for one in listed] == want
        refused = await server.client.get("/v1/studies", params={"state": "flying"})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
