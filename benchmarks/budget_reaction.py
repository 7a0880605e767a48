"""How soon a budget acts once it is used up: `python -m benchmarks.budget_reaction`.

1,000 jobs hold a slot each. Budgets of their tenant, of projects and of single jobs are set so that
what accrues reaches their limits one after the other; the moment is worked out from the times of
the grants and the price alone. Measured is the time from then until the scheduler holds new work
back, and for the budgets that stop, until the last pod was told. The cost service, the scheduler,
Kafka and Postgres are real, both services in one process; pods are simulated.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import Row, options, publish
from benchmarks.scheduler_load import (
    TimedPods,
    nodes,
    records,
    scheduler,
    send,
    submission,
    until,
)
from drivetrain_schemas.budgets import AtLimit, BudgetPeriod, BudgetSet, BudgetSpec
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobSubmit
from drivetrain_schemas.pods import StopNotice
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import logs
from services.runtime.bus import OutRecord
from services.runtime.kafka_access import KafkaAccess
from services.runtime.service import Running
from services.scheduler.launchers.base import PodRef
from services.standalone.embedded import running_kafka, running_postgres
from tests.platform_service import out_record, running, service_environment

TITLE = "A budget that is used up"
MEASURES = (
    "services/cost/budget_watch.py",
    "services/cost/budgets.py",
    "services/cost/core/budgets.py",
    "services/cost/store_accrual.py",
    "services/cost/store_budgets.py",
    "services/scheduler/holds.py",
    "services/scheduler/core/holds.py",
)
NOTES = """
From the moment at which what accrues reaches a limit, worked out from the times of the grants and
the price, until the scheduler holds new work back, or until each job was told to stop. Each job
holds one slot; budgets are of the tenant, of projects and of jobs in turn, one each quarter of a
second. Both services in one process over Kafka and Postgres, pods are simulated: what a pod takes
to save and end is not in it. The cost service compares about once a second.
"""

TARGET_SECONDS = 5.0
PREFIX = "budgets."
# Ten dollars a second with 1,000 slots: what is rounded in a charge is a thousandth of a second.
MICRO_USD_PER_SLOT_HOUR = 36_000_000
MICRO_USD_PER_SLOT_SECOND = MICRO_USD_PER_SLOT_HOUR // 3600
PRICES = f"""
prices:
  - id: bench
    device_type: cpu
    valid_from: 2026-01-01T00:00:00Z
    micro_usd_per_slot_hour: {MICRO_USD_PER_SLOT_HOUR}
"""
NUM_PROJECTS = 10
FIRST_LIMIT_SECONDS, SECONDS_BETWEEN = 5.0, 0.25


@dataclass(slots=True)
class StoppedPods(TimedPods):
    """Notes when each job was told to stop."""

    told_at: dict[str, float] = field(default_factory=dict)

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        self.told_at.setdefault(pod.job_id, time.time())
        await TimedPods.notify(self, pod, notice)


@dataclass(frozen=True, slots=True)
class Held:
    """The slots of a budget's subject; all of them are held until the end."""

    granted_at: Sequence[float]

    def spent(self, at: float) -> int:
        seconds = at * len(self.granted_at) - sum(self.granted_at)
        return round(seconds * MICRO_USD_PER_SLOT_SECOND)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A budget, and when what accrues reaches its limit (seconds since the epoch)."""

    name: str
    spec: BudgetSpec
    at: float


def main() -> None:
    given = options("budget_reaction", "How soon a budget acts")
    logs.configure("bench", "error")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    num_jobs, num_holds = (40, 3) if given.quick else (1000, 90)
    rows = asyncio.run(measure(num_jobs, num_holds))
    publish(rows, given, ["aiokafka", "asyncpg"])


async def measure(num_jobs: int, num_holds: int) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = await stack.enter_async_context(running_postgres(folder / "postgres"))
        broker = await stack.enter_async_context(running_kafka(folder / "kafka"))
        access = KafkaAccess(broker.bootstrap_servers, broker.username, broker.password)
        pods = StoppedPods(seconds=86_400)
        on = nodes(num_jobs // 8 + 1)
        process = await stack.enter_async_context(scheduler(access, postgres.dsn, PREFIX, on, pods))
        (folder / "prices.yaml").write_text(PRICES)
        environment = service_environment(access, postgres.dsn, PREFIX)
        settings = CostSettings.model_validate(
            {**environment, "price_book": folder / "prices.yaml"}
        )
        cost = await stack.enter_async_context(running(build(settings)))
        await start_jobs(access, process, cost, num_jobs)
        holds = await hold(access, process, cost, num_jobs, num_holds)
        stops = await stop(access, cost, pods, num_jobs)
    return [
        row("hold", f"new work is held back, {num_holds} budgets", holds, num_jobs),
        row("stop", f"each of {len(stops)} jobs of a project is told to stop", stops, num_jobs),
    ]


def row(name: str, what: str, seconds: Sequence[float], num_jobs: int) -> Row:
    longest = max(seconds)
    return Row(
        id=f"budget_reaction.{name}",
        what=f"from the limit until {what}, {num_jobs:,} jobs running",
        ours=f"at most {longest:.2f} s (median {statistics.median(seconds):.2f} s)",
        peer="",
        ratio=longest / TARGET_SECONDS,
        target=f"at most {TARGET_SECONDS:.0f} s",
        met=longest <= TARGET_SECONDS,
    )


async def start_jobs(access: KafkaAccess, process: Running, cost: Running, num_jobs: int) -> None:
    await send(access, records(PREFIX, [job(number) for number in range(num_jobs)]))
    await until(process, "select count(*) = $1 from runs where started_at is not null", num_jobs)
    await until(cost, "select count(*) = $1 from allocations", num_jobs)
    await until(cost, "select count(*) = $1 from jobs", num_jobs)


def job(number: int) -> JobSubmit:
    submitted = submission(f"r{number}")
    spec = submitted.spec.model_copy(update={"project": f"p{number % NUM_PROJECTS}"})
    return submitted.model_copy(update={"spec": spec})


async def hold(
    access: KafkaAccess, process: Running, cost: Running, num_jobs: int, num_holds: int
) -> list[float]:
    """Seconds from each crossing until the scheduler's hold is committed."""
    planned = []
    now = time.time()
    for number in range(num_holds):
        subject = subject_of(number, num_jobs)
        at = now + FIRST_LIMIT_SECONDS + number * SECONDS_BETWEEN
        planned.append(await crossing(cost, f"hold-{number}", subject, AtLimit.HOLD, at))
    await send(access, [command(one) for one in planned])
    seen: dict[str, float] = {}
    async with process.platform.database.connection() as connection:
        while len(seen) < num_holds:
            found = await connection.fetch("select name from budget_holds")
            at = time.time()
            for name in found:
                seen.setdefault(name["name"], at)
            await asyncio.sleep(0.02)
    return [seen[one.name] - one.at for one in planned]


def subject_of(number: int, num_jobs: int) -> dict[str, str]:
    """The tenant, a project and a job in turn."""
    if number % 3 == 0:
        return {}
    if number % 3 == 1:
        return {"project": f"p{number % NUM_PROJECTS}"}
    return {"job_id": job_id_for("default", f"r{number % num_jobs}")}


async def stop(access: KafkaAccess, cost: Running, pods: StoppedPods, num_jobs: int) -> list[float]:
    """Seconds from the crossing until each job of a project was told to stop."""
    jobs = [job_id_for("default", f"r{number}") for number in range(0, num_jobs, NUM_PROJECTS)]
    planned = await crossing(
        cost, "stop", {"project": "p0"}, AtLimit.STOP, time.time() + FIRST_LIMIT_SECONDS
    )
    await send(access, [command(planned)])
    while not all(job_id in pods.told_at for job_id in jobs):
        await asyncio.sleep(0.02)
    return [pods.told_at[job_id] - planned.at for job_id in jobs]


async def crossing(
    cost: Running, name: str, subject: dict[str, str], at_limit: AtLimit, at: float
) -> Crossing:
    """A budget of this subject whose limit is what will have accrued at that time."""
    async with cost.platform.database.connection() as connection:
        rows = await connection.fetch(
            """select extract(epoch from granted_at)::float8 as at
            from allocations join jobs using (job_id)
            where ($1::text is null or project = $1) and ($2::text is null or job_id = $2)""",
            subject.get("project"),
            subject.get("job_id"),
        )
    limit = Held([row["at"] for row in rows]).spent(at)
    spec = BudgetSpec.model_validate(
        {
            **subject,
            "limit_micro_usd": limit,
            "period": BudgetPeriod.TOTAL,
            "at_limit": at_limit,
        }
    )
    return Crossing(name, spec, at)


def command(one: Crossing) -> OutRecord:
    event = Event(
        event_id=f"{PREFIX}{one.name}",
        source="/benchmark",
        occurred_at=datetime.now(UTC),
        tenant_id="default",
        payload=BudgetSet(tenant_id="default", name=one.name, spec=one.spec),
    )
    return out_record(event, PREFIX)


if __name__ == "__main__":
    main()
