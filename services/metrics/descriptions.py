"""What pods say of their surroundings, as an event for those who keep every event.

A description is emitted once, however often it is sent: a later one of a run has a higher number.
"""

from drivetrain_schemas.descriptions import PodDescribed, RunDescribed
from services.metrics import alerts, store
from services.runtime import logs
from services.runtime.errors import EventTooLarge
from services.runtime.transaction import Tx

log = logs.get()


async def take(tx: Tx, described: PodDescribed) -> None:
    """Emit it if it is newer than what was emitted of the run."""
    run = await store.lock_run(
        tx.connection, described.run_id, described.job_id, described.tenant_id, described.attempt
    )
    is_new = await tx.connection.fetchval(
        """insert into descriptions (run_id, number) values ($1, $2)
        on conflict (run_id) do update set number = excluded.number
            where descriptions.number < excluded.number
        returning true""",
        run.run_id,
        described.number,
    )
    if not is_new:
        return
    event = RunDescribed(
        **alerts.run_of(run), number=described.number, surroundings=described.surroundings
    )
    try:
        await tx.emit(event, tenant_id=run.tenant_id)
    except EventTooLarge as error:  # a number may be longer as we write it than as it came
        log.warning("a description is left out", run_id=run.run_id, error=str(error))
        return
    log.info("run described", run_id=run.run_id, tenant_id=run.tenant_id)
