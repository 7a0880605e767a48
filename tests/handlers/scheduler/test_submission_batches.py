"""Many commands in one transaction: the same answers as one by one, by a constant number of
statements."""

import asyncio

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobCancel, JobState, JobSubmit, RejectionReason
from services.runtime.errors import TemporaryError
from services.scheduler import handlers
from tests.events import emitted, make_event
from tests.handlers.scheduler.world import World, make_spec, make_submit


async def batch(world: World, *payloads) -> list:
    """What is emitted for these commands in one transaction."""
    await world.emitted()
    async with world.database.transaction() as tx:
        await world.commands.on_batch(tx, [make_event(payload) for payload in payloads])
    return await world.emitted()


def answers(sent: list) -> dict[str, list[tuple[str, str]]]:
    """By job, for order across jobs is nothing that a reader may count on."""
    found: dict[str, list[tuple[str, str]]] = {}
    for payload in sent:
        answer = (payload.kind.type, getattr(payload, "reason", ""))
        found.setdefault(payload.job_id, []).append(answer)
    return found


MIXED = [
    make_submit("a", seed=1),
    make_submit("a", seed=1),
    make_submit("a", seed=2),
    make_submit("b", resources={"devices": 99}),
    JobSubmit(request_id="c", spec=make_spec(), job_id=job_id_for("default", "other")),
    make_submit("c"),
    JobCancel(job_id=job_id_for("default", "a")),
    JobCancel(job_id=job_id_for("default", "d")),
    make_submit("d"),
    make_submit("b"),
]


async def test_a_batch_is_answered_like_its_commands_one_by_one(world: World):
    together = answers(await batch(world, *MIXED))
    async with world.database.transaction() as tx:
        await tx.connection.execute("truncate jobs cascade; truncate early_commands")
    world.restart()
    sent = []
    for payload in MIXED:
        sent += await batch(world, payload)

    assert together == answers(sent)
    assert [together[job_id_for("default", name)] for name in "abcd"] == [
        [
            ("job.queued", ""),
            ("job_request.rejected", RejectionReason.ID_CONFLICT),
            ("job.cancelling", ""),
            ("job.cancelled", ""),
        ],
        [
            ("job_request.rejected", RejectionReason.MORE_DEVICES_THAN_POOL),
            ("job.queued", ""),
        ],
        [
            ("job_request.rejected", RejectionReason.INVALID_SPEC),
            ("job.queued", ""),
        ],
        [("job.queued", ""), ("job.cancelling", ""), ("job.cancelled", "")],
    ]


async def test_the_conflict_names_the_command_of_the_same_batch(world: World):
    first, second = make_event(make_submit("a", seed=1)), make_event(make_submit("a", seed=2))
    async with world.database.transaction() as tx:
        await world.commands.on_batch(tx, [first, second])

    rejected = (await emitted(world.database))[-1]

    assert first.event_id in rejected.payload.detail
    assert rejected.causation_id == rejected.payload.command_event_id == second.event_id


async def test_jobs_of_a_batch_are_in_the_order_of_their_commands(world: World):
    names = [f"r{number:03}" for number in range(50)]
    await batch(world, *(make_submit(name) for name in reversed(names)))

    async with world.database.connection() as connection:
        rows = await connection.fetch("select request_id from jobs order by submission")

    assert [row["request_id"] for row in rows] == list(reversed(names))


async def test_the_number_of_statements_does_not_grow_with_the_batch(world: World):
    async def count(num_submissions: int, prefix: str) -> int:
        statements: list[str] = []
        async with world.database.transaction() as tx:
            with tx.connection.query_logger(lambda query: statements.append(query.query)):
                await world.commands.on_batch(
                    tx, [make_event(make_submit(f"{prefix}{n}")) for n in range(num_submissions)]
                )
        return len(statements)

    await count(2, "first")  # the driver asks for the types of the columns
    assert await count(1, "a") == await count(40, "b") <= 8


async def test_commands_wait_for_the_nodes_to_be_registered(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.loop.registered.clear()
    monkeypatch.setattr(handlers, "REGISTERED_SECONDS", 0.01)
    with pytest.raises(TemporaryError):
        await batch(world, make_submit("a"))

    monkeypatch.setattr(handlers, "REGISTERED_SECONDS", 60)
    handling = asyncio.create_task(batch(world, make_submit("a")))
    await asyncio.sleep(0)
    world.loop.registered.set()

    (queued,) = await handling
    assert queued.kind.type == "job.queued"
    assert (await world.job(queued.job_id)).state is JobState.QUEUED
