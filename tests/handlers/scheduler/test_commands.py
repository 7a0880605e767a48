"""Commands in, answers out."""

import json
from dataclasses import replace

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import (
    JobCancel,
    JobRequestRejected,
    JobState,
    JobSubmit,
    RejectionReason,
)
from services.runtime.bus import Record
from services.runtime.processing import EventProcessor
from tests.events import emitted, handle, make_event, make_record, parked, process
from tests.handlers.scheduler.world import World, make_spec, make_submit

JOB = job_id_for("default", "r1")


async def test_a_request_becomes_a_queued_job_and_wakes_the_loop(world: World):
    (queued,) = await world.submit(make_submit(resources={"devices": 2}, seed=7))

    assert queued.kind.type == "job.queued"
    assert queued.job_id == JOB
    assert queued.spec.seed == 7
    assert (await world.job(JOB)).state is JobState.QUEUED
    assert world.loop._woken.is_set()


async def test_the_job_id_may_be_left_out_by_other_systems(world: World):
    bare = JobSubmit(request_id="r1", spec=make_spec())
    record = make_record(make_event(make_submit()))
    value = bare.model_dump_json(exclude_none=True).encode()

    await _process(world, replace(record, value=value))

    assert (await world.job(JOB)).request_id == "r1"


@pytest.mark.parametrize("key", [None, b"", b"r1", job_id_for("default", "r2").encode()])
@pytest.mark.parametrize(
    "payload", [make_submit(), JobCancel(job_id=JOB)], ids=["submit", "cancel"]
)
async def test_a_request_with_another_key_than_its_jobs_id_is_refused(
    world: World, key: bytes | None, payload: Payload
):
    """By another partition it could overtake the job's own request, or come after it."""
    event = make_event(payload)
    await _process(world, replace(make_record(event), key=key))

    payloads = [it.payload for it in await emitted(world.database)]
    (rejected,) = [it for it in payloads if isinstance(it, JobRequestRejected)]
    assert (rejected.job_id, rejected.command_event_id) == (JOB, event.event_id)
    assert [(error.field, error.fix) for error in rejected.errors] == [
        ("key", f"write the key {JOB}")
    ]
    assert await world.job(JOB) is None


async def test_the_same_request_again_is_the_same_job(world: World):
    first = make_submit(hyperparameters={"a": 1, "b": 2.5})
    again = make_submit(hyperparameters={"b": 2.5, "a": 1}, resources={"devices": 1})

    await world.submit(first)

    assert await world.submit(*[again] * 20) == []


async def test_another_payload_under_the_same_id_is_refused_and_changes_nothing(world: World):
    event = make_event(make_submit(seed=1))
    await handle(world.database, world.commands.handlers, event)

    (rejected,) = await world.submit(make_submit(seed=2))

    assert rejected.reason is RejectionReason.ID_CONFLICT
    assert event.event_id in rejected.detail
    assert (await world.spec(JOB)).seed == 1


async def test_one_and_one_point_nought_are_different_requests(world: World):
    await world.submit(make_submit(hyperparameters={"a": 1}))

    (rejected,) = await world.submit(make_submit(hyperparameters={"a": 1.0}))

    assert rejected.reason is RejectionReason.ID_CONFLICT


REFUSED = {
    "more devices than the pool owns": (
        {"resources": {"devices": 5}},
        RejectionReason.MORE_DEVICES_THAN_POOL,
        "spec.resources.devices",
    ),
    "a pool that is not": (
        {"resources": {"pool": "moon"}},
        RejectionReason.NO_SUCH_POOL,
        "spec.resources.pool",
    ),
    "an image": ({"image": "python:3"}, RejectionReason.UNSUPPORTED, "spec.image"),
    "a spec too large for a rank": (
        {"environment": {f"V{number}": "x" * 4000 for number in range(30)}},
        RejectionReason.TOO_LARGE,
        "spec",
    ),
}


@pytest.mark.parametrize(("spec", "reason", "field"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_run_is_refused(world: World, spec, reason, field):
    (rejected,) = await world.submit(make_submit(**spec))

    assert rejected.reason is reason
    assert rejected.job_id == JOB
    assert rejected.errors[0].field == field
    assert rejected.errors[0].fix
    assert await world.job(JOB) is None


async def test_a_refused_request_may_be_mended_under_its_id(world: World):
    await world.submit(make_submit(resources={"devices": 5}))

    (queued,) = await world.submit(make_submit(resources={"devices": 4}))

    assert queued.kind.type == "job.queued"


async def test_a_job_id_that_does_not_follow_from_the_request_is_refused(world: World):
    other = job_id_for("default", "other")

    (rejected,) = await world.submit(JobSubmit(request_id="r1", spec=make_spec(), job_id=other))

    assert rejected.reason is RejectionReason.INVALID_SPEC
    assert rejected.job_id == JOB
    assert JOB in rejected.errors[0].fix


async def test_an_invalid_spec_is_answered_field_by_field(world: World):
    data = make_submit().model_dump(mode="json")
    data["spec"]["resources"]["devices"] = -1
    data["spec"]["colour"] = "red"

    event_id = await _process_json(world, data)

    (rejected,) = await world.emitted()
    assert rejected.reason is RejectionReason.INVALID_SPEC
    assert (rejected.job_id, rejected.request_id) == (JOB, "r1")
    assert rejected.command_event_id == event_id
    assert {error.field for error in rejected.errors} == {"spec.resources.devices", "spec.colour"}


async def test_the_answer_to_an_unreadable_request_names_it_as_its_cause(world: World):
    event_id = await _process_json(world, {"request_id": "r1", "spec": {"name": 7}})

    (answer,) = await emitted(world.database, after=world._last)
    assert answer.causation_id == answer.correlation_id == event_id


async def test_a_job_that_a_newer_version_accepted_is_still_read(world: World):
    await world.submit(make_submit())
    async with world.database.transaction() as tx:
        await tx.connection.execute(
            """update jobs set spec = (spec::jsonb || '{"of_tomorrow": 1}')::text,
                trial = '{"study_id": "study_aaaaaaaaaaaaaaaaaaaaaaaaaa", "number": 1, "x": 2}'"""
        )

    await world.rounds()

    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_a_request_that_names_no_job_is_parked(world: World):
    data = make_submit().model_dump(mode="json")
    data["request_id"] = "two\nlines"
    data["job_id"] = 5

    await _process_json(world, data)

    (fact,) = await parked(world.database)
    assert fact["reason"] == "invalid_payload"


ODD = {
    "a control character": "a\\u0001b",
    "a large emoji": "\\ud83d\\ude00",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
async def test_odd_text_is_accepted_or_answered_but_never_kills(world: World, text):
    value = make_submit(environment={"TEXT": "here"}).model_dump_json(exclude_none=True)
    record = make_record(make_event(make_submit()))

    await _process(
        world,
        Record(record.topic, 0, 0, 0, None, value.replace("here", text).encode(), record.headers),
    )

    (answer,) = await world.emitted()
    assert answer.kind.type in ("job.queued", "job_request.rejected")


async def test_a_waiting_job_is_cancelled_at_once(world: World):
    await world.submit(make_submit())

    cancelling, cancelled = await world.cancel(JOB, "changed my mind")

    assert (cancelling.kind.type, cancelled.kind.type) == ("job.cancelling", "job.cancelled")
    assert cancelled.reason == "changed my mind"
    await world.rounds()
    assert world.launcher.launches == []


async def test_a_running_job_is_stopped_and_then_cancelled(world: World):
    await world.submit(make_submit())
    await world.rounds()
    pod = pod_id_for(JOB, 1, 0)

    (cancelling,) = await world.cancel(JOB)
    assert cancelling.kind.type == "job.cancelling"
    assert await world.cancel(JOB) == []
    await world.rounds()
    assert world.launcher.notices[pod].reason == "cancel"

    world.launcher.end(pod, "interrupted")
    await world.emitted()
    await world.rounds()
    assert await world.types() == ["run.cancelled", "allocation.released", "job.cancelled"]


async def test_a_finished_job_cannot_be_cancelled(world: World):
    await world.submit(make_submit())
    await world.cancel(JOB)
    (finished,) = await world.cancel(JOB)
    assert finished.reason is RejectionReason.ALREADY_FINISHED
    assert "cancelled" in finished.detail


async def test_another_tenant_can_neither_cancel_it_nor_learn_that_it_exists(world: World):
    await world.submit(make_submit())
    event = make_event((await _cancel_payload(JOB)), tenant_id="stranger")

    (rejected,) = await handle(world.database, world.commands.handlers, event)

    assert rejected.reason is RejectionReason.NO_SUCH_JOB
    assert (await world.job(JOB)).wish is None


async def _cancel_payload(job_id: str):
    from drivetrain_schemas.jobs import JobCancel

    return JobCancel(job_id=job_id)


async def _process_json(world: World, data) -> str:
    event = make_event(make_submit())
    record = make_record(event)
    value = json.dumps(data).encode()
    await _process(world, Record(record.topic, 0, 0, 0, None, value, record.headers))
    return event.event_id


async def _process(world: World, record: Record) -> None:
    await world.emitted()
    processor = EventProcessor(
        "scheduler", "drivetrain.", world.commands.handlers, world.commands.refusals
    )
    async with world.database.transaction() as tx:
        await process(processor, tx, record)
