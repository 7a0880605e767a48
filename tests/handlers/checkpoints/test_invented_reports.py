"""Pods can invent reports: what they cause is bounded, however many they are."""

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import SaveFailure
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.topics import REPORTS
from services.checkpoints.reports import report_handler
from services.runtime.bus import Record
from services.runtime.run_tokens import RunTokens
from tests.events import handle_batch, make_event
from tests.handlers.checkpoints.builders import (
    JOB,
    key_of,
    make_failed,
    make_granted,
    make_resumed,
    make_written,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue
from tests.handlers.checkpoints.test_saving import make_write_failed, types

OTHER = "job_" + "d" * 26


async def num_rows(catalogue: Catalogue) -> dict[str, int]:
    async with catalogue.database.connection() as connection:
        return {
            table: await connection.fetchval(f"select count(*) from {table}")
            for table in ("jobs", "checkpoints", "intents", "failing_runs", "inbox")
        }


async def send(catalogue: Catalogue, *payloads: Payload) -> None:
    """As one batch, without the worker."""
    events = [make_event(payload) for payload in payloads]
    await handle_batch(catalogue.database, report_handler(RunTokens(None), lambda: None), *events)


async def test_checkpoints_that_were_never_written_leave_no_event_and_no_row(
    running: Catalogue,
) -> None:
    before = await num_rows(running)
    await send(running, *(make_written(step) for step in range(1, 300)))
    assert await num_rows(running) == before
    assert await running.wait() == []
    assert await num_rows(running) == before


async def test_reports_about_unknown_jobs_leave_nothing(running: Catalogue) -> None:
    before = await num_rows(running)
    key = key_of(50).replace("c" * 26, "d" * 26)
    await send(
        running,
        make_written(50, job_id=OTHER, manifest_key=key),
        make_write_failed(50).model_copy(update={"job_id": OTHER}),
    )
    assert await num_rows(running) == before


async def test_a_run_resumes_once_whatever_its_pods_report(running: Catalogue) -> None:
    for step in (50, 100):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    await running.deliver(make_failed(), make_granted(fence=2))
    assert types(await running.deliver(make_resumed(key_of(100)))) == ["checkpoint.restored"]
    for step in (50, 100):
        assert await running.deliver(make_resumed(key_of(step))) == []
    stranger = make_resumed(key_of(50)).model_copy(update={"run_id": run_id_for(JOB, 9)})
    assert await running.deliver(stranger) == []


async def test_a_resume_from_an_invented_checkpoint_is_no_event(running: Catalogue) -> None:
    await running.deliver(make_failed(), make_granted(fence=2))
    emitted = await running.deliver(make_resumed(key_of(70), rejected=(key_of(80), key_of(90))))
    for _ in range(30):
        emitted += await running.wait()
    assert emitted == []
    assert await running.states() == {}
    assert await running.intents() == {"list"}


async def test_causes_that_are_reported_in_turn_are_announced_once_each(
    running: Catalogue,
) -> None:
    causes = (SaveFailure.STORE_FULL, SaveFailure.STORE_READ_ONLY)
    emitted = []
    for step in range(10):
        emitted += await running.deliver(*(make_write_failed(step, cause) for cause in causes))
    assert [payload.reason for payload in emitted] == [*causes]


async def test_an_unreadable_report_is_left_to_the_service_that_parks_it(
    running: Catalogue,
) -> None:
    record = Record(f"drivetrain.{REPORTS.name}", 0, 0, 0, b"key", b"{", ())
    async with running.database.transaction() as tx:
        assert await report_handler(RunTokens(None), lambda: None)(tx, [record]) == ()
