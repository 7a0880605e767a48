"""When a study ends before its last trial."""

from dataclasses import asdict, dataclass, replace

from services.hpo.core.actions import EndedBy
from services.hpo.core.inputs import Spent


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. `no_improvement` are trials in a row, and `min_change` what counts as one."""

    device_hours: float | None = None
    cost_usd: float | None = None
    hours: float | None = None
    no_improvement: int | None = None
    min_change: float = 0.0
    failed_trials: int | None = None

    @property
    def need_a_clock(self) -> bool:
        return any(limit is not None for limit in (self.device_hours, self.cost_usd, self.hours))


@dataclass(frozen=True, slots=True)
class Crossed:
    ended_by: EndedBy
    reason: str


def changed(limits: Limits, given: Limits) -> Limits:
    """`limits` with those replaced that are given."""
    replaced = {name: value for name, value in asdict(given).items() if value is not None}
    if given.no_improvement is None:
        del replaced["min_change"]
    return replace(limits, **replaced)


def crossed(limits: Limits, spent: Spent) -> Crossed | None:
    """The first limit that the study has reached."""
    if limits.device_hours is not None and spent.device_hours >= limits.device_hours:
        return Crossed(
            "device_hours",
            f"its trials have held devices for {spent.device_hours:.2f} of at most "
            f"{limits.device_hours:g} hours",
        )
    if limits.cost_usd is not None and spent.cost_usd >= limits.cost_usd:
        return Crossed(
            "cost", f"its trials have cost {spent.cost_usd:.2f} of at most {limits.cost_usd:g} USD"
        )
    if limits.hours is not None and spent.hours >= limits.hours:
        return Crossed("hours", f"it has run for {limits.hours:g} hours, as long as it may")
    return None


def without_improvement(limits: Limits, num_since_best: int) -> Crossed | None:
    if limits.no_improvement is None or num_since_best < limits.no_improvement:
        return None
    return Crossed(
        "no_improvement", f"{num_since_best} trials in a row ended without a better value"
    )
