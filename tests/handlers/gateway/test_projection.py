"""Events in -> read model: once, in any order of topics, and the same whenever it is built."""

import asyncio
from dataclasses import replace
from typing import Any

from drivetrain_schemas.envelope import Event, encode_payload
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import (
    JobRequestRejected,
    JobSubmit,
    JobSucceeded,
    RejectionReason,
)
from drivetrain_schemas.runs import RunStarted
from services.gateway import queries, store
from services.gateway.queries.job_list import Wanted
from services.gateway.rest import views
from services.runtime.bus import Record
from tests.conftest import OpenDatabase
from tests.events import make_record
from tests.handlers.gateway.model import Model
from tests.handlers.gateway.story import START, TENANT, Story, day, recovery, spec


async def shown(model: Model, job_id: str) -> dict[str, Any]:
    async with model.database.connection() as connection:
        row = await queries.jobs.find(connection, TENANT, job_id)
    assert row is not None
    return row


async def test_a_job_is_followed_through_a_failure(model: Model) -> None:
    story = Story()
    story.nodes("node-1")
    job = recovery(story)
    await model.tell(*story.events)
    row = await shown(model, job.job_id)
    assert (row["state"], row["attempt"], row["step"]) == ("running", 2, 250)
    assert row["max_steps"] == 400
    assert row["charged_micro_usd"] == 133  # 5.98 s of two slots at 4 cents an hour
    async with model.database.connection() as connection:
        runs = await queries.jobs.runs(connection, job.job_id)
        checkpoints = await queries.checkpoints.of_job(connection, job.job_id, 10)
        held = await queries.nodes.held_slots(connection, TENANT)
    assert [(run["state"], run["signal"]) for run in runs] == [("failed", 9), ("running", None)]
    assert [(one["step"], one["is_latest"], one["is_best"]) for one in checkpoints] == [
        (200, True, True),
        (100, False, False),
    ]
    assert checkpoints[1]["restored_by_attempt"] == 2
    assert [(slot["node_id"], slot["slot"], slot["attempt"]) for slot in held] == [
        ("node-1", 0, 2),
        ("node-1", 1, 2),
    ]


async def test_every_record_twice_changes_nothing(model: Model) -> None:
    events = list(day())
    await model.tell(*events)
    before = await model.tables()
    await model.tell(*events)
    assert await model.tables() == before
    assert await model.rows("select 1 from outbox") == []


async def test_two_builds_of_the_same_topics_are_equal(
    model: Model, database: OpenDatabase
) -> None:
    """Order holds within a topic's key only: the second build reads topic after topic."""
    events = list(day())
    other = Model(await database("gateway"))
    await model.tell(*events)
    await other.tell(*sorted(events, key=lambda event: event.payload.kind.topic.name, reverse=True))
    first = await model.tables()
    again = await other.tables()
    assert len(first["timeline"]) > 60
    assert first == again
    generations = {
        (await one.rows("select generation from stream"))[0]["generation"] for one in (model, other)
    }
    assert len(generations) == 2


async def test_cursors_have_no_gap(model: Model) -> None:
    await model.tell(*day())
    cursors = [row["cursor"] for row in await model.rows("select cursor from timeline order by 1")]
    assert cursors == list(range(1, len(cursors) + 1))
    assert (await model.rows("select last_cursor from stream"))[0]["last_cursor"] == len(cursors)


async def test_a_later_cursor_waits_for_the_earlier_one_to_commit(model: Model) -> None:
    """Or a reader that has seen 2 would never look for 1."""
    second = asyncio.Event()

    async def later() -> int:
        async with model.database.transaction() as tx:
            cursor = await store.advance(tx.connection, 1)
        second.set()
        return cursor

    async with model.database.transaction() as tx:
        first = await store.advance(tx.connection, 1)
        task = asyncio.create_task(later())
        waiting = "select 1 from pg_locks where not granted and locktype = 'transactionid'"
        while not await model.rows(waiting):
            assert not second.is_set()
            await asyncio.sleep(0.01)
    assert await task == first + 1


async def test_an_event_that_comes_late_moves_nothing_back(model: Model) -> None:
    """A parked event, replayed after its job has ended."""
    story = Story()
    job = story.job("late")
    job.starts()
    job.succeeds()
    late = next(event for event in story.events if isinstance(event.payload, RunStarted))
    await model.tell(*(event for event in story.events if event is not late))
    await model.tell(late)
    row = await shown(model, job.job_id)
    assert row["state"] == "succeeded"
    assert (await model.rows("select state from runs"))[0]["state"] == "succeeded"
    assert len(await model.rows("select 1 from timeline")) == len(story.events)


async def test_heartbeats_of_an_older_run_are_not_shown(model: Model) -> None:
    story = Story()
    job = recovery(story)
    await model.tell(*story.events)
    old = job.beat(399)
    stale = old.model_copy(update={"fence": 11, "attempt": 1})
    await model.tell(Event("stale", "/pod", story.now, TENANT, stale))
    assert (await shown(model, job.job_id))["step"] == 250
    timeline = await model.rows("select 1 from timeline where type = 'pod.heartbeat'")
    assert timeline == []


def submit(story: Story, name: str, event_id: str = "cmd-1") -> Event[JobSubmit]:
    return Event(event_id, "/other", story.now, TENANT, JobSubmit(request_id=name, spec=spec(name)))


async def test_a_request_is_there_before_the_scheduler_has_spoken(model: Model) -> None:
    """Also without a job_id in the command, which other systems may leave out."""
    story = Story()
    command = submit(story, "asked")
    job = story.job("asked")
    record = make_record(named(command))
    await model.put(replace(record, value=encode_payload(command.payload)))
    row = await shown(model, job.job_id)
    assert (row["state"], row["name"], row["submitted_at"]) == ("submitted", "asked", START)
    await model.tell(*story.events)
    row = await shown(model, job.job_id)
    assert (row["state"], row["submitted_at"]) == ("queued", START)


async def test_a_refused_request_is_shown_as_rejected_whichever_comes_first(
    model: Model, database: OpenDatabase
) -> None:
    story = Story()
    command = named(submit(story, "refused"))
    job_id = command.payload.job_id
    assert job_id is not None
    rejected = story.tell(
        JobRequestRejected(
            job_id=job_id,
            request_id="refused",
            command_event_id="cmd-1",
            reason=RejectionReason.NO_SUCH_POOL,
            detail="there is no pool gpu",
        )
    )
    other = Model(await database("gateway"))
    await model.tell(command, rejected)
    await other.tell(rejected, command)
    for one in (model, other):
        row = await shown(one, job_id)
        assert (row["state"], row["refused_reason"]) == ("rejected", "no_such_pool")
        assert row["name"] == "refused"


async def test_a_refusal_without_a_readable_request_is_listed_at_its_time(model: Model) -> None:
    story = Story()
    story.job("older")
    rejected = story.tell(
        JobRequestRejected(
            job_id=job_id_for(TENANT, "unreadable"),
            request_id="unreadable",
            command_event_id="cmd-1",
            reason=RejectionReason.INVALID_SPEC,
            detail="spec.max_steps: is too small",
        )
    )
    await model.tell(*story.events)
    async with model.database.connection() as connection:
        found = await queries.job_list.page(connection, TENANT, Wanted(), None, 10)
    newest, _ = found.rows
    assert (newest["state"], newest["submitted_at"]) == ("rejected", rejected.occurred_at)


async def test_a_refused_cancel_makes_no_job(model: Model) -> None:
    story = Story()
    rejected = JobRequestRejected(
        job_id=job_id_for(TENANT, "nobody's"),
        request_id=None,
        command_event_id="cmd-1",
        reason=RejectionReason.NO_SUCH_JOB,
        detail="there is no such job",
    )
    await model.tell(story.tell(rejected))
    assert await model.rows("select 1 from jobs") == []
    assert len(await model.rows("select 1 from rejections")) == 1


async def test_a_job_that_counts_no_steps_is_shown_without_them(model: Model) -> None:
    story = Story()
    job = story.job("shell", max_steps=None)
    job.starts()
    job.releases()
    story.tell(JobSucceeded(job_id=job.job_id, attempts=1, result=None, finished_at=story.now))
    await model.tell(*story.events)
    assert views.progress(await shown(model, job.job_id)) is None


async def test_refusals_of_two_producers_with_one_event_id_are_both_kept(model: Model) -> None:
    """An event id is unique within its source only."""
    story = Story()
    refused = []
    for source, name in (("/lab", "first"), ("/plant", "second")):
        command = replace(named(submit(story, name, event_id="1")), source=source)
        assert command.payload.job_id is not None
        refused.append(command.payload.job_id)
        rejected = story.tell(
            JobRequestRejected(
                job_id=refused[-1],
                request_id=name,
                command_event_id=command.event_id,
                reason=RejectionReason.NO_SUCH_POOL,
                detail=f"there is no pool {name}",
            )
        )
        await model.tell(command, rejected)
    for job_id, name in zip(refused, ("first", "second"), strict=True):
        row = await shown(model, job_id)
        assert (row["state"], row["refused_detail"]) == (
            "rejected",
            f"there is no pool {name}",
        )


async def test_what_cannot_be_read_as_a_command_is_left_to_the_scheduler(model: Model) -> None:
    await model.put(Record("drivetrain.commands.jobs", 0, 0, 0, b"k", b"{not json", ()))
    assert await model.rows("select 1 from jobs") == []
    assert await model.rows("select 1 from outbox") == []


async def test_a_parked_record_keeps_its_bytes(model: Model) -> None:
    parked_id = await model.park(b"\xff\x00")
    await model.put(
        Record(
            "drivetrain.parked.cost",
            0,
            9,
            0,
            None,
            None,
            (("x-\0odd", b"\xff"), ("x-parked-detail", b"\0")),
        )
    )
    rows = await model.rows("select * from parked order by service desc")
    assert (rows[0]["parked_id"], rows[0]["value"], rows[0]["topic"]) == (
        parked_id,
        b"\xff\x00",
        "drivetrain.commands.jobs",
    )
    assert rows[0]["header_names"] == ["content-type", "ce_id"]
    assert (rows[1]["service"], rows[1]["value"], rows[1]["reason"]) == ("cost", None, "unknown")
    assert (rows[1]["header_names"], rows[1]["detail"]) == (["x-␀odd"], "␀")


def named(event: Event[JobSubmit]) -> Event[JobSubmit]:
    """With the job's id in the payload; without it the payload has no key to write it under."""
    job_id = job_id_for(TENANT, event.payload.request_id)
    return replace(event, payload=event.payload.model_copy(update={"job_id": job_id}))
