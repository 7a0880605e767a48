"""Commands about jobs, and those among them that arrive before the job itself.

The cancel (or stop, pause, resume) of a client with another partitioner or a wrong key may be read
before its submit. So a command about an unknown job is kept for a while and applied when the job
arrives; if none arrives in time, the answer is `no_such_job`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from drivetrain_schemas.envelope import Event
from services.runtime import logs
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import instruments, job_commands, store, store_early_commands

log = logs.get()

KEPT = timedelta(seconds=30)
MAX_KEPT = 10_000
MAX_KEPT_OF_TENANT = 1_000
EXPIRE_SECONDS = 5.0
EXPIRE_BATCH = 500


async def handle(tx: Tx, event: Event[Any]) -> None:
    """Apply the command, refuse it, or wait for the job. The caller holds the writer lock."""
    command = job_commands.command_of(event)
    job = await store.job(tx.connection, command.job_id)
    if job is not None:
        await job_commands.apply(tx, command, job)
    elif await store_early_commands.insert(tx.connection, command, MAX_KEPT, MAX_KEPT_OF_TENANT):
        _count(tx, "kept")
        log.info("command kept until its job arrives", job_id=command.job_id, verb=command.verb)
    else:
        _count(tx, "too_many")
        await job_commands.refuse_unknown(tx, command)


async def apply_early(tx: Tx, job_ids: Sequence[str]) -> None:
    """Apply the commands that arrived before these jobs, which were queued just now."""
    if not job_ids:
        return
    for command in await store_early_commands.take(tx.connection, job_ids):
        _count(tx, "applied")
        job = await store.job(tx.connection, command.job_id)
        await job_commands.apply(tx, command, job)


async def expire(platform: Platform) -> None:
    """A task of the service: answer the commands for which no job arrived."""

    async def work() -> None:
        num_expired = EXPIRE_BATCH
        while num_expired == EXPIRE_BATCH:
            async with platform.database.transaction() as tx:
                num_expired = await expire_once(tx)

    await repeat(work, platform.clock, EXPIRE_SECONDS, "early commands not expired")


async def expire_once(tx: Tx, age: timedelta = KEPT) -> int:
    """Answer some of those that are older than `age`; how many."""
    expired = await store_early_commands.take_older(tx.connection, age, EXPIRE_BATCH)
    for command in expired:
        _count(tx, "expired")
        await job_commands.refuse_unknown(tx, command)
    return len(expired)


def _count(tx: Tx, outcome: str) -> None:
    tx.after_commit(instruments.EARLY_COMMANDS.labels(outcome).inc)
