"""One decision over the whole queue: `decide(snapshot, now) -> Decision`.

Strict order for each pool and device type: a job that does not fit blocks the device types that it
could use for every job behind it, so a large job is never starved by small ones (backfill comes
with its own rules later). A job that names no device type could use each type of which the pool
has enough; it waits behind others only while all of those are blocked. Three kinds of job block
nothing: one that backs off after a failed run, one that a budget holds back, and one that the pool
is too small for.

Jobs of one kind fit or do not fit alike, so the cost is that of the kinds and the grants, not of
the queue's length. Once a job waits for every device type of every pool, the other kinds are not
looked at one by one. Every job of the snapshot is granted, in a `Waiting`, or left for the next
cycle (`is_cut`, after `max_grants`). Where other pods use the nodes, a gang is placed only where
its pods fit beside them, and one for which they leave too little blocks nothing either.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.gang import Room, place_job
from services.scheduler.core.holds import Hold, by_scope, split
from services.scheduler.core.model import Kind, QueuedJob, Slot
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.reasons import (
    Waiting,
    limited,
    not_counted,
    why_behind,
    why_never,
    why_no_room,
    why_not_placed,
)
from services.scheduler.core.snapshot import Snapshot

MAX_GRANTS = 64
MAX_MEMORIES = 64  # of a slot, in one decision; of more, each counts as the next power of two
_BACKING_OFF = "the next attempt waits before it starts"

Lines = Mapping[Kind, tuple[QueuedJob, ...]]


@dataclass(frozen=True, slots=True)
class Grant:
    """These slots go to the job's next run."""

    job_id: str
    device_type: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    grants: tuple[Grant, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    is_cut: bool = False


def decide(snapshot: Snapshot, now: datetime, max_grants: int = MAX_GRANTS) -> Decision:
    """Same snapshot and time, same decision."""
    # 1. Set aside what blocks nothing: jobs that may not start yet, kinds that never fit.
    lines, aside = _set_aside(snapshot, now)
    # 2. Serve the rest in order, until each kind is used up or does not fit.
    service = _Service(snapshot.occupancy, lines)
    is_cut = not service.serve(max_grants)
    if is_cut:
        return Decision(tuple(service.grants), (), is_cut=True)
    # 3. What was not served waits, for one reason per kind.
    return Decision(tuple(service.grants), (*aside, *service.waiting))


def _set_aside(snapshot: Snapshot, now: datetime) -> tuple[Lines, list[Waiting]]:
    lines = dict(snapshot.queue.lines)
    aside: list[Waiting] = []
    delayed = [job for job in snapshot.queue.delayed.values() if _is_early(job, now)]
    for kind in {job.kind for job in delayed}:
        early: dict[str, list[QueuedJob]] = {}
        for job in (job for job in lines[kind] if _is_early(job, now)):
            early.setdefault(job.last_run, []).append(job)
        for last_run, jobs in early.items():
            detail = f"{last_run}; {_BACKING_OFF}" if last_run else _BACKING_OFF
            aside.append(Waiting(tuple(jobs), WaitingReason.BACKING_OFF, detail))
        lines[kind] = tuple(job for job in lines[kind] if not _is_early(job, now))
    aside += _held(snapshot.holds, lines)
    for kind, line in list(lines.items()):
        if not snapshot.occupancy.usable_types(kind):
            if line:
                aside.append(Waiting(line, *why_never(kind, snapshot.occupancy)))
            del lines[kind]
    return lines, aside


def _held(holds: Sequence[Hold], lines: dict[Kind, tuple[QueuedJob, ...]]) -> list[Waiting]:
    """Takes the jobs that budgets hold back out of their lines."""
    if not holds:
        return []
    found: list[Waiting] = []
    scopes = by_scope(holds)
    for kind, line in list(lines.items()):
        lines[kind], held = split(line, scopes)
        for hold, jobs in held.items():
            found.append(Waiting(jobs, WaitingReason.BUDGET_REACHED, hold.detail))
    return found


def _is_early(job: QueuedJob, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _memories(lines: Lines) -> Mapping[Kind, int]:
    """By kind: the memory of a slot. Each that differs costs as much as there are nodes, so it is
    bounded how many do."""
    found = {kind: kind.slot_memory for kind in lines}
    if len(set(found.values())) <= MAX_MEMORIES:
        return found
    return {kind: 1 << (each - 1).bit_length() if each else 0 for kind, each in found.items()}


class _Service:
    """One pass over the queue: what is still free, what is blocked, what was granted.

    `blockers` names for each pool and device type the first job that waits for it.
    """

    def __init__(self, occupancy: Occupancy, lines: Lines) -> None:
        self.grants: list[Grant] = []
        self.waiting: list[Waiting] = []
        self._occupancy = occupancy
        self._lines = lines
        self._rooms = {
            place: Room(free, occupancy.mask, occupancy.by_id, occupancy.ours)
            for place, free in occupancy.free.items()
        }
        self._memories = _memories(lines)
        self._blockers: dict[tuple[str, str], QueuedJob] = {}
        # The places that no job waits for. Without one, all that is left waits.
        self._open = {(kind.pool, name) for kind in lines for name in self._types(kind)}
        self._first: dict[tuple[str, tuple[str, ...]], QueuedJob] = {}
        self._why: dict[tuple[str, bool], tuple[WaitingReason, str]] = {}

    def serve(self, max_grants: int) -> bool:
        """False when the limit of grants in one cycle was reached."""
        heads: list[tuple[tuple[int, int, str], int, Kind]] = []
        for kind, line in self._lines.items():
            if line and self._types(kind):
                heads.append((line[0].order, 0, kind))
            elif line:
                self.waiting.append(Waiting(line, *self._why_no_room(kind)))
        # The order ends with the job's id, so no two entries compare their kinds.
        heapq.heapify(heads)
        while heads and self._open:
            _, number, kind = heads[0]
            line = self._lines[kind]
            placed = self._place(kind, line[number])
            if placed is None:
                self._wait(kind, line[number:])
                heapq.heappop(heads)
                continue
            if len(self.grants) == max_grants:
                return False
            self._grant(kind, line[number], placed)
            if number + 1 < len(line):
                heapq.heapreplace(heads, (line[number + 1].order, number + 1, kind))
            else:
                heapq.heappop(heads)
        for _, number, kind in heads:
            self._wait_behind(kind, self._lines[kind][number:])
        return True

    def _types(self, kind: Kind) -> tuple[str, ...]:
        """The device types that a job of this kind could use, were none of ours there."""
        return self._occupancy.fitting_types(kind, self._memories[kind])

    def _why_not_placed(self, kind: Kind, types: Sequence[str]) -> tuple[WaitingReason, str]:
        memory = self._memories[kind]
        places = [(kind.pool, name) for name in types]
        rooms = (self._rooms[place] for place in places if place in self._rooms)
        num_free = max((room.num_free(memory) for room in rooms), default=0)
        return why_not_placed(kind, num_free, self._limits(kind, places))

    def _why_no_room(self, kind: Kind) -> tuple[WaitingReason, str]:
        places = [(kind.pool, name) for name in self._occupancy.usable_types(kind)]
        memory = self._memories[kind]
        most = max(self._occupancy.num_fitting(place, memory) for place in places)
        return why_no_room(kind, most, self._limits(kind, places))

    def _limits(self, kind: Kind, places: Sequence[tuple[str, str]]) -> str:
        """Why slots that nobody holds cannot be used."""
        memory = self._memories[kind]
        found = [self._occupancy.why_limited(place, memory) for place in places]
        return limited(found) + not_counted(kind, self._occupancy)

    def _open_types(self, kind: Kind) -> tuple[str, ...]:
        """The device types that a job of this kind could use and that no earlier job waits for."""
        return tuple(
            device_type
            for device_type in self._types(kind)
            if (kind.pool, device_type) not in self._blockers
        )

    def _open_rooms(self, kind: Kind) -> dict[str, Room]:
        """By open device type: what is free of it. A type without free slots has none."""
        places = ((name, (kind.pool, name)) for name in self._open_types(kind))
        return {name: self._rooms[place] for name, place in places if place in self._rooms}

    def _place(self, kind: Kind, job: QueuedJob) -> tuple[str, tuple[Slot, ...]] | None:
        """All slots of the gang on one open device type, or None."""
        return place_job(kind.devices, self._open_rooms(kind), self._memories[kind])

    def _grant(self, kind: Kind, job: QueuedJob, placed: tuple[str, tuple[Slot, ...]]) -> None:
        device_type, slots = placed
        self._rooms[kind.pool, device_type].take(slots, self._memories[kind])
        self.grants.append(Grant(job.job_id, device_type, slots))

    def _wait(self, kind: Kind, line: tuple[QueuedJob, ...]) -> None:
        """The rest of this kind waits behind its own head, or behind the job that blocks it."""
        open_types = self._open_types(kind)
        if open_types:
            head, line = line[0], line[1:]
            self.waiting.append(Waiting((head,), *self._why_not_placed(kind, open_types)))
            for name in open_types:
                self._blockers[kind.pool, name] = head
                self._open.discard((kind.pool, name))
        if line:
            self._wait_behind(kind, line)

    def _wait_behind(self, kind: Kind, line: tuple[QueuedJob, ...]) -> None:
        """Every place that this kind could use is blocked: it waits behind the first blocker."""
        types = self._types(kind)
        blocker = self._first.get((kind.pool, types))
        if blocker is None:
            blockers = (self._blockers[kind.pool, name] for name in types)
            blocker = self._first[kind.pool, types] = min(blockers, key=lambda job: job.order)
        key = (blocker.job_id, blocker.kind.priority > kind.priority)
        why = self._why.get(key)
        if why is None:
            why = self._why[key] = why_behind(kind, blocker)
        self.waiting.append(Waiting(line, *why))
