"""What runs and tenants write beyond their quota is left out, so that it delays nobody else.

Records of many runs share a partition and are stored in its order. Leaving a batch out costs a
small part of storing it, so a flood is passed quickly. Buckets are kept in memory, one per run: its
records are in one partition, and one process reads that. A tenant's are in many, which are not read
in the order of time after an outage, so it has a bucket for each ten seconds. A quota of a tenant
is one of each replica, so it grows with what they can store. After a restart each sender has a full
one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import asyncpg

from services.metrics.core.quota import (
    Bucket,
    filled,
    full,
    has_room,
    is_full,
    of_slot,
    slot_of,
    taken,
)
from services.metrics.messages import LogBatch, SampleBatch
from services.runtime.transaction import Tx

# Full ones are forgotten beyond this number.
MAX_BUCKETS = 10_000
# What a row costs beside its content.
MIN_SAMPLES_OF_COLUMN = 10
MIN_BYTES_OF_BATCH = 1000

# "run" and its id, or "tenant", its id and the number of the ten seconds.
Sender = tuple[str, str, int]


class Written(Protocol):
    """A record of a run. `appended_ms`: when the broker appended it, in milliseconds since 1970."""

    @property
    def run_id(self) -> str: ...
    @property
    def appended_ms(self) -> int: ...


B = TypeVar("B", bound=Written)


def cost_of(written: Written) -> int:
    """Of anything but samples and lines: 1."""
    if isinstance(written, LogBatch):
        return cost_of_lines(written)
    return cost_of_samples(written) if isinstance(written, SampleBatch) else 1


def cost_of_samples(batch: SampleBatch) -> int:
    return sum(max(MIN_SAMPLES_OF_COLUMN, len(steps)) for steps, _ in batch.columns.values())


def cost_of_lines(batch: LogBatch) -> int:
    return max(MIN_BYTES_OF_BATCH, num_bytes(batch))


def num_bytes(batch: LogBatch) -> int:
    return len("\n".join(batch.lines).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, of a run and of a tenant; no bound on a tenant where None."""

    of_run: int
    of_tenant: int | None = None

    def exceeded(self, what: str, fix: str) -> str:
        """Why records are left out, for those who read an alert."""
        of_tenant = (
            f", or those of its tenant more than {self.of_tenant:,}" if self.of_tenant else ""
        )
        return (
            f"the run logs more than {self.of_run:,} {what} a second{of_tenant}: further ones are "
            f"left out and counted; {fix}"
        )


@dataclass(frozen=True, slots=True)
class Divided(Generic[B]):
    """Batches that are stored, and those beyond a quota."""

    admitted: list[B]
    beyond: list[B]


class Quotas:
    """The buckets of one stream."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self._buckets: dict[Sender, Bucket] = {}

    async def divide(self, tx: Tx, batches: Sequence[B]) -> Divided[B]:
        """Which batches are stored. Counts once the transaction is committed."""
        tenants: Mapping[str, str] = {}
        if self.rates.of_tenant is not None:
            tenants = await _tenants(tx.connection, {batch.run_id for batch in batches})
        changed: dict[Sender, Bucket] = {}
        divided: Divided[B] = Divided([], [])
        for batch in batches:
            at = batch.appended_ms / 1000
            buckets = {
                sender: filled(changed.get(sender) or self._buckets.get(sender) or new, rate, at)
                for sender, rate, new in self._senders(batch, tenants, at)
            }
            if not all(map(has_room, buckets.values())):
                divided.beyond.append(batch)
                continue
            cost = cost_of(batch)
            changed.update((sender, taken(bucket, cost)) for sender, bucket in buckets.items())
            divided.admitted.append(batch)
        tx.after_commit(lambda: self._keep(changed))
        return divided

    def _senders(
        self, batch: Written, tenants: Mapping[str, str], at: float
    ) -> list[tuple[Sender, int, Bucket]]:
        """Each with its rate, and the bucket that it begins with."""
        run_id, of_run, of_tenant = batch.run_id, self.rates.of_run, self.rates.of_tenant
        senders: list[tuple[Sender, int, Bucket]] = [(("run", run_id, 0), of_run, full(of_run, at))]
        if of_tenant is not None and run_id in tenants:
            sender = "tenant", tenants[run_id], slot_of(at)
            senders.append((sender, of_tenant, of_slot(of_tenant, at)))
        return senders

    def _keep(self, changed: Mapping[Sender, Bucket]) -> None:
        self._buckets.update(changed)
        if len(self._buckets) <= MAX_BUCKETS:
            return
        now = max(bucket.at for bucket in self._buckets.values())
        rates = {"run": self.rates.of_run, "tenant": self.rates.of_tenant or 0}
        self._buckets = {
            sender: bucket
            for sender, bucket in self._buckets.items()
            if not is_full(bucket, rates[sender[0]], now)
        }


async def _tenants(connection: asyncpg.Connection, run_ids: set[str]) -> dict[str, str]:
    """Of runs, as the scheduler's events name them; what a batch says of its tenant is a claim."""
    rows = await connection.fetch(
        "select run_id, tenant_id from runs where run_id = any($1) and state is not null",
        list(run_ids),
    )
    return {row["run_id"]: row["tenant_id"] for row in rows}
