"""Why pods of a starting run do not run yet, as the launcher tells it, and when that is news.

`cause` is one of the contract's closed list; `by` names who refuses or holds back; `detail` is a
sentence with the words of what runs the pods. In: the waits of a run's pods. Out: the one that is
told of the run.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from drivetrain_schemas.runs import WaitCause
from drivetrain_schemas.text import storable

MAX_BY = 300
MAX_DETAIL = 1000
# Other words for the same cause are shown only after this: some change with every look.
SAME_CAUSE_SECONDS = 10.0
# While one of these lasts, the pod does not exist.
BLOCKED = (WaitCause.REFUSED, WaitCause.NO_ANSWER)
_ORDER = tuple(WaitCause)


@dataclass(frozen=True, slots=True)
class Wait:
    cause: WaitCause
    by: str
    detail: str


def wait_of(cause: WaitCause, by: str, detail: str) -> Wait:
    """Bounded, whatever the words are."""
    return Wait(cause, storable(by[:MAX_BY]), storable(detail[:MAX_DETAIL]))


def foremost(waits: Iterable[Wait | None]) -> Wait | None:
    """Of a gang's pods, in their order: what keeps one from existing before what keeps one back."""
    known = [wait for wait in waits if wait is not None]
    return min(known, key=lambda wait: _ORDER.index(wait.cause), default=None)


def is_news(told: Wait | None, now: Wait | None, seconds_since_told: float) -> bool:
    if told is None or now is None or (told.cause, told.by) != (now.cause, now.by):
        return told != now
    return told != now and seconds_since_told >= SAME_CAUSE_SECONDS
