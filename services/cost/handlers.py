"""What the cost service does with each event: load -> decide -> save -> emit.

Only what is committed is counted and logged: a retried transaction leaves no trace.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.budgets import BudgetRemove, BudgetSet
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from services.cost import low_use, pools, store
from services.cost.budgets import BudgetCommands
from services.cost.core.charges import Charge, Usage, by_capacity, charges
from services.cost.core.corrections import fields_of
from services.cost.core.prices import UNPRICED, PriceBook
from services.cost.instruments import CHARGED, PLATFORM_COST, UNPRICED_CHARGES
from services.cost.jobs import JOB_KINDS, end_jobs, put_jobs
from services.runtime import logs
from services.runtime.processing import EventBatchHandler, HandlerTable
from services.runtime.transaction import Tx

log = logs.get()


def handlers(book: PriceBook) -> HandlerTable:
    """The table of handled events, at the prices of `book`."""
    handle_batch = batch_handler(book)

    async def handle(tx: Tx, event: Event[Any]) -> None:
        await handle_batch(tx, [event])

    kinds = (AllocationGranted, AllocationReleased, *JOB_KINDS, BudgetSet, BudgetRemove)
    return dict.fromkeys((*kinds, *pools.KINDS, *low_use.KINDS), handle)


def batch_handler(book: PriceBook) -> EventBatchHandler:
    """Handles many events of jobs by a few statements, and commands one by one."""
    commands = BudgetCommands(book).handlers
    handle_allocations = _allocations_handler(book)

    async def handle(tx: Tx, events: Sequence[Event[Any]]) -> None:
        await put_jobs(tx, events)
        kinds = (AllocationGranted, AllocationReleased)
        allocations = [event for event in events if isinstance(event.payload, kinds)]
        if allocations:
            await handle_allocations(tx, allocations)
        await end_jobs(tx, events)
        for event in events:
            if type(event.payload) in commands:
                await commands[type(event.payload)](tx, event)
            elif isinstance(event.payload, pools.KINDS):
                await pools.handle(tx, event)
            elif isinstance(event.payload, low_use.KINDS):
                await low_use.handle(tx, event)

    return handle


def _allocations_handler(book: PriceBook) -> EventBatchHandler:
    async def handle(
        tx: Tx, events: Sequence[Event[AllocationGranted | AllocationReleased]]
    ) -> None:
        await store.put_allocations(tx.connection, [event.payload for event in events])
        releases = {
            event.payload.allocation_id: (event, event.payload)
            for event in reversed(events)  # of two of one allocation the first counts
            if isinstance(event.payload, AllocationReleased)
        }
        if not releases:
            return
        # Charged already: delivered again after its inbox row was pruned.
        done = await store.charged(tx.connection, releases.keys())
        facts: list[ChargeRecorded] = []
        for event, released in reversed(releases.values()):
            if released.allocation_id in done:
                continue
            for charge in (each for usage in usages(released) for each in charges(usage, book)):
                facts.append(recorded(released, charge))
                await tx.emit(facts[-1], tenant_id=released.tenant_id, cause=event)
                tx.after_commit(partial(observe, facts[-1]))
        await store.insert_charges(tx.connection, facts)

    return handle


def usages(released: AllocationReleased) -> tuple[Usage, ...]:
    """The usages to be priced."""
    whole = Usage(
        allocation_id=released.allocation_id,
        pool=released.pool,
        device_type=released.device_type,
        num_slots=len(released.slots),
        starts_at=released.granted_at,
        paid_ends_at=released.paid_ends_at,
        ends_at=released.released_at,
    )
    return by_capacity(whole, store.spot_slots(released).total())


def recorded(released: AllocationReleased, charge: Charge) -> ChargeRecorded:
    """The charge as an event: who is charged, and for what."""
    whose = ("tenant_id", "job_id", "run_id", "attempt", "allocation_id", "pool", "device_type")
    facts = {name: getattr(released, name) for name in whose}
    return ChargeRecorded(**facts, **fields_of(charge))


def observe(charge: ChargeRecorded) -> None:
    """Count and log a charge that is committed."""
    CHARGED.labels(charge.pool, charge.device_type).inc(charge.amount_micro_usd / 1_000_000)
    platform_micro_usd = charge.platform_micro_usd or 0
    PLATFORM_COST.labels(charge.pool, charge.device_type).inc(platform_micro_usd / 1_000_000)
    if charge.price_id == UNPRICED:
        UNPRICED_CHARGES.labels(charge.pool, charge.device_type).inc()
        log.warning(
            "usage has no price", pool=charge.pool, device_type=charge.device_type,
            allocation_id=charge.allocation_id,
        )  # fmt: skip
    log.info(
        "charge recorded", tenant_id=charge.tenant_id, job_id=charge.job_id,
        charge_id=charge.charge_id, amount_micro_usd=charge.amount_micro_usd,
        platform_micro_usd=platform_micro_usd,
    )  # fmt: skip
