"""The waiting jobs in their total order: priority, then submission, then id.

Kept by kind, because jobs of one kind fit or do not fit together: a cycle looks at the head of each
kind, however many jobs wait behind it. A `Queue` is a value; `changed` makes the next one and
shares every line that did not change.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from services.scheduler.core.model import Kind, QueuedJob

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Queue:
    """`lines`: the jobs of each kind, in order. `delayed`: those with a time before which they may
    not start, also in `lines`."""

    lines: Mapping[Kind, tuple[QueuedJob, ...]] = field(default_factory=dict)
    delayed: Mapping[str, QueuedJob] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Iterable[QueuedJob]) -> "Queue":
        lines: dict[Kind, list[QueuedJob]] = {}
        delayed = {}
        for job in jobs:
            lines.setdefault(job.kind, []).append(job)
            if job.not_before is not None:
                delayed[job.job_id] = job
        return cls({kind: tuple(sorted(line, key=_order)) for kind, line in lines.items()}, delayed)

    def __len__(self) -> int:
        return sum(map(len, self.lines.values()))

    def __iter__(self) -> Iterator[QueuedJob]:
        for line in self.lines.values():
            yield from line

    def changed(self, removed: Iterable[QueuedJob], added: Iterable[QueuedJob]) -> "Queue":
        """Without `removed`, which are in it, and with `added`."""
        lines: dict[Kind, list[QueuedJob]] = {}
        delayed = dict(self.delayed)
        for job in removed:
            line = lines.setdefault(job.kind, list(self.lines[job.kind]))
            del line[bisect_left(line, job.order, key=_order)]
            delayed.pop(job.job_id, None)
        for job in added:
            line = lines.setdefault(job.kind, list(self.lines.get(job.kind, ())))
            insort(line, job, key=_order)
            if job.not_before is not None:
                delayed[job.job_id] = job
        merged = {**self.lines, **{kind: tuple(line) for kind, line in lines.items()}}
        return Queue({kind: line for kind, line in merged.items() if line}, delayed)

    def position(self, job: QueuedJob) -> int:
        """The job's position among all that wait in its pool, from 1."""
        num_before = 0
        for kind, line in self.lines.items():
            if kind.pool != job.kind.pool or kind.priority < job.kind.priority:
                continue
            is_above = kind.priority > job.kind.priority
            num_before += len(line) if is_above else bisect_left(line, job.order, key=_order)
        return num_before + 1

    def next_delay_end(self, now: datetime) -> datetime | None:
        """The earliest time at which a delayed job may start."""
        ends = (job.not_before for job in self.delayed.values())
        return min((end for end in ends if end is not None and end > now), default=None)
