"""What earlier studies of a tenant say about the next trials of a job: their seconds and price.

Studies whose job has the same name, or the same code, tell how long devices were held for each step
of trials; the time of failed trials and restarts is in it. Steps of a stopped trial count up to its
last rung. The price is the last one paid for devices of the same kind.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import asyncpg

from drivetrain_schemas.studies import StudySpec
from services.hpo import messages
from services.hpo.core.preview import Known, Span

# The newest studies that are looked at, and those of the same job that are counted.
MAX_STUDIES = 50
MAX_COUNTED = 5


@dataclass(frozen=True, slots=True)
class _Earlier:
    study_id: str
    spec: StudySpec
    slot_seconds: float
    usd_per_slot_hour: float


async def known(connection: asyncpg.Connection, tenant_id: str, spec: StudySpec) -> Known:
    studies = await _studies(connection, tenant_id)
    steps, trials = [], []
    for study in [one for one in studies if _has_same_job(spec, one.spec)][:MAX_COUNTED]:
        device_seconds = study.slot_seconds / study.spec.job.resources.devices
        num_steps, num_trials = await _used(connection, study)
        if device_seconds and num_steps:
            steps.append(device_seconds / num_steps)
        if device_seconds and num_trials:
            trials.append(device_seconds / num_trials)
    prices = [
        one.usd_per_slot_hour
        for one in studies
        if one.usd_per_slot_hour and _has_same_devices(spec, one.spec)
    ]
    return Known(_span(steps), _span(trials), prices[0] if prices else None)


async def _studies(connection: asyncpg.Connection, tenant_id: str) -> list[_Earlier]:
    """The newest of the tenant that held devices, the newest first."""
    rows = await connection.fetch(
        """
        select study_id, spec, slot_seconds, price_micro_usd_per_slot_hour as price
        from studies join spending using (study_id)
        where tenant_id = $1 order by started_at desc limit $2
        """,
        tenant_id,
        MAX_STUDIES,
    )
    return [
        _Earlier(
            row["study_id"],
            messages.read_spec(row["spec"]),
            row["slot_seconds"],
            row["price"] / 1e6,
        )
        for row in rows
    ]


async def _used(connection: asyncpg.Connection, study: _Earlier) -> tuple[int, int]:
    """The steps of the study's trials, and their number where all of them were whole."""
    rows = await connection.fetch(
        """
        select state = 'completed' as is_whole,
               case when state = 'completed' then '[]' else measured end as measured,
               count(*) as num
        from trials where study_id = $1 and state in ('completed', 'stopped')
        group by 1, 2
        """,
        study.study_id,
    )
    num_whole = sum(row["num"] for row in rows if row["is_whole"])
    early = sum(_last_step(row["measured"]) * row["num"] for row in rows if not row["is_whole"])
    num_steps = num_whole * (study.spec.job.max_steps or 0) + early
    return num_steps, 0 if early else num_whole


def _last_step(measured: str) -> int:
    pairs: Sequence[Sequence[int]] = json.loads(measured)
    return pairs[-1][0] if pairs else 0


def _has_same_job(spec: StudySpec, other: StudySpec) -> bool:
    own, its = spec.job, other.job
    is_same_code = own.code is not None and its.code is not None and own.code == its.code
    return _has_same_devices(spec, other) and (own.name == its.name or is_same_code)


def _has_same_devices(spec: StudySpec, other: StudySpec) -> bool:
    own, its = spec.job.resources, other.job.resources
    return (own.pool, own.device_type) == (its.pool, its.device_type)


def _span(values: Iterable[float]) -> Span | None:
    found = list(values)
    return Span(min(found), median(found), max(found)) if found else None
