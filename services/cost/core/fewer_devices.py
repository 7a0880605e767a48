"""Jobs of one command that ran on different numbers of slots: fewer may do the same for less money.

Twice the slots seldom make a job twice as fast. Where several jobs of a command succeeded on fewer
slots of the same kind, their costs and times are the evidence.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from drivetrain_schemas.units import short_money
from services.cost.core.prices import SlotKind
from services.cost.core.recommendations import LEAST_MICRO_USD, Recommendation

# Medians of fewer jobs say little.
LEAST_JOBS = 3
# The median cost on fewer slots, as a part of that on more, in percent.
MOST_COST = 80


@dataclass(frozen=True, slots=True)
class Done:
    """A job that succeeded. `command`: a digest; `seconds`: how long it held its slots."""

    job_id: str
    name: str | None
    command: str
    kind: SlotKind
    num_slots: int
    micro_usd: int
    seconds: float


def fewer_devices(jobs: Iterable[Done]) -> Iterator[Recommendation]:
    """One for each command, kind and number of slots that cost more than a smaller number does.

    `jobs`: in the order in which they succeeded; the newest is named.
    """
    alike: dict[tuple[str, SlotKind], dict[int, list[Done]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for job in jobs:
        alike[job.command, job.kind][job.num_slots].append(job)
    for by_slots in alike.values():
        enough = {num: done for num, done in by_slots.items() if len(done) >= LEAST_JOBS}
        for num_slots, done in enough.items():
            found = _instead(num_slots, done, enough)
            if found is not None:
                yield found


def _instead(
    num_slots: int, done: Sequence[Done], by_slots: Mapping[int, Sequence[Done]]
) -> Recommendation | None:
    costs = {
        num: median_low(job.micro_usd for job in of_num)
        for num, of_num in by_slots.items()
        if num <= num_slots
    }
    fewer = min(costs, key=lambda num: (costs[num], num))
    if fewer == num_slots or costs[fewer] * 100 > costs[num_slots] * MOST_COST:
        return None
    saving = sum(job.micro_usd for job in done) - costs[fewer] * len(done)
    if saving < LEAST_MICRO_USD:
        return None
    seconds = {num: median(job.seconds for job in by_slots[num]) for num in (fewer, num_slots)}
    newest = done[-1]
    evidence = (
        f"{len(done)} jobs of this command on {_slots(num_slots)} cost "
        f"{short_money(costs[num_slots])} and took {_time(seconds[num_slots])} (medians); "
        f"{len(by_slots[fewer])} on {_slots(fewer)} cost {short_money(costs[fewer])} and took "
        f"{_time(seconds[fewer])}"
    )
    advice = f"ask for {fewer} device{'' if fewer == 1 else 's'}, if it may take that long"
    return Recommendation(newest.job_id, newest.name, "fewer_devices", saving, evidence, advice)


def _slots(number: int) -> str:
    return f"{number} slot{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
