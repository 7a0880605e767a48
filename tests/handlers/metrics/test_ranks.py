"""A run has series and windows of the ranks that its slots allow, whatever its program claims."""

# ruff: noqa: F811  (fixtures of another module)

from functools import partial
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, SlotRef
from drivetrain_schemas.ids import pod_id_for, run_id_for
from drivetrain_schemas.metrics import AlertRaised
from services.metrics import streams
from services.metrics.core.ranks import RANKS_OF_SLOT
from services.metrics.core.windows import Source, add_batch
from services.metrics.handlers import HANDLERS
from services.metrics.windows.folding import observe
from services.metrics.windows.stored import take_windows
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.events import emitted, handle, handle_batch, make_event, make_record
from tests.handlers.metrics.builders import JOB, NOW, make_heartbeat, make_samples
from tests.handlers.metrics.test_streams import client, metrics  # noqa: F401
from tests.handlers.metrics.test_windows import as_record, of_rank

RUN = run_id_for(JOB, 1)
TOKENS = RunTokens(None)
take_samples = partial(streams.take_samples, TOKENS)


async def grant(metrics: Database, num_slots: int) -> None:
    granted = AllocationGranted(
        job_id=JOB,
        run_id=RUN,
        attempt=1,
        fence=1,
        allocation_id=f"alloc_{JOB.removeprefix('job_')}_1",
        tenant_id="default",
        pool="default",
        device_type="cpu",
        slots=tuple(SlotRef(node_id="node-1", slot=slot) for slot in range(num_slots)),
        granted_at=NOW,
    )
    await handle(metrics, HANDLERS, make_event(granted))


@pytest.mark.parametrize(
    ("num_slots", "claimed", "kept"), [(1, 9999, 8), (2, 16, 16), (0, 1024, 1024)]
)
async def test_samples_of_ranks_that_a_run_cannot_have_are_left_out_and_counted(
    metrics: Database, client: httpx.AsyncClient, num_slots: int, claimed: int, kept: int
) -> None:
    """A batch that comes again is not counted again. Before its slots are known, a run may have as
    many ranks as any."""
    if num_slots:
        await grant(metrics, num_slots)
    batches = [
        make_event(make_samples({"loss": {1: 0.5}}, rank=rank, batch=number))
        for number, rank in enumerate((0, kept - 1, claimed, claimed + 1))
    ]
    for _ in range(2):
        await handle_batch(metrics, take_samples, *batches)
    async with metrics.connection() as connection:
        ranks = await connection.fetch("select rank from series order by rank")
    assert [row["rank"] for row in ranks] == [0, kept - 1]
    found = (await client.get("/series", params={"job_id": JOB})).json()
    assert found["num_samples_left_out"] == 2
    [raised] = [event.payload for event in await emitted(metrics)]
    assert isinstance(raised, AlertRaised)
    assert f"rank {claimed} is more than the run can have" in raised.detail


async def test_windows_of_ranks_that_a_run_cannot_have_are_not_stored(metrics: Database) -> None:
    await grant(metrics, 1)
    source = add_batch(Source(), 10.0, 0, "s", 0, {"loss": ([1], [0.5])})
    states = [of_rank(source, 1, rank) for rank in (0, RANKS_OF_SLOT, 1000)]
    async with metrics.transaction() as tx:
        assert not await take_windows(tx, [as_record(state) for state in states])
    async with metrics.connection() as connection:
        rows = await connection.fetch("select rank from windows")
    assert [row["rank"] for row in rows] == [0]


@pytest.mark.parametrize(
    ("claim", "is_folded"),
    [
        (make_samples({"loss": {1: 0.5}}, rank=1023), True),
        (make_samples({"loss": {1: 0.5}}, rank=1024), False),
        (make_heartbeat(pod_id=pod_id_for(JOB, 1, 1023)), True),
        (make_heartbeat(pod_id=pod_id_for(JOB, 1, 1024)), False),
        (make_heartbeat(pod_id=pod_id_for(JOB, 2, 0)), False),
        (make_heartbeat(pod_id=pod_id_for("job_" + "x" * 26, 1, 0)), False),
    ],
)
def test_the_windows_process_keeps_no_state_of_what_no_run_can_have(
    claim: Any, is_folded: bool
) -> None:
    assert (observe(TOKENS, make_record(make_event(claim))) is not None) is is_folded
