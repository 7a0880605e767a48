"""What searches are told without an event: that a limit is reached, and to go on.

The clock is read for studies with limits of time, devices or money. A search is told only when a
limit is crossed, so its log does not grow while it runs. Where thousands of paused trials end, they
do in slices, each in a transaction of its own; other studies go on in between.
"""

from collections.abc import Awaitable
from functools import partial

from services.hpo import gauges, instruments, saved, spending, store
from services.hpo.core import inputs
from services.hpo.core.limits import crossed
from services.hpo.work import Work
from services.runtime import logs
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.errors import is_temporary
from services.runtime.repeating import repeat
from services.runtime.service import Platform

log = logs.get()

LOOK_SECONDS = 5.0


async def watch(platform: Platform) -> None:
    """Until cancelled."""
    work = partial(look, platform.database, platform.clock)
    await repeat(work, platform.clock, LOOK_SECONDS, "limits of studies wait for Postgres")


async def look(database: Database, clock: Clock) -> None:
    """End each study that has reached a limit, and the paused trials that never go on."""
    async with database.connection() as connection:
        study_ids = await spending.with_clocks(connection)
        with_more = await store.with_more(connection)
        gauges.show(await gauges.not_ended(connection))
    for study_id in study_ids:
        await _one(study_id, _look_at(database, clock, study_id), "limits of a study not read")
    for study_id in with_more:
        await _one(study_id, _go_on(database, study_id), "paused trials of a study not ended")


async def _one(study_id: str, work: Awaitable[None], failure: str) -> None:
    """One study that cannot be read must not keep the others from their limits."""
    try:
        await work
    except Exception as error:
        if is_temporary(error):
            raise
        instruments.LIMITS_NOT_READ.inc()
        log.exception(failure, study_id=study_id)


async def _go_on(database: Database, study_id: str) -> None:
    has_more = True
    while has_more:
        async with database.transaction() as tx:
            work = Work(tx)
            study = await work.lock(study_id)
            if study is None or study.is_finished:
                return
            search = (await work.load(study)).search
            await work.tell(study, inputs.GoOn(), None)
            await work.end()
            has_more = search.has_more
        log.info("paused trials of a study ended", study_id=study_id, has_more=has_more)


async def _look_at(database: Database, clock: Clock, study_id: str) -> None:
    async with database.transaction() as tx:
        work = Work(tx)
        study = await work.lock(study_id)
        if study is None or study.is_finished:
            return
        row = study.row
        # From the row: the searches of all these studies may not fit into memory.
        status = saved.load_status(row)
        spent = await spending.spent(tx.connection, study_id, row.started_at, clock.now())
        if not status.is_ending and crossed(status.numbers.limits, spent) is not None:
            await work.tell(study, spent, None)
            await work.end()
