"""The records of `windows`, stored; closed windows are judged, and alerts raised and cleared.

A batch of records is one transaction. Records are the newest state of a source, so a repeated or an
older one changes nothing.
"""

from collections.abc import Sequence

from drivetrain_schemas.envelope import InvalidEvent
from drivetrain_schemas.runs import RunState
from services.metrics import alerts, ranks, store
from services.metrics.core import health
from services.metrics.core.health import Change
from services.metrics.core.ranks import RANKS_OF_SLOT
from services.metrics.core.windows import WINDOW_SECONDS, Window
from services.metrics.instruments import WINDOWS_STORED
from services.metrics.store_watched import watched_of
from services.metrics.windows import store as store_windows
from services.metrics.windows.records import SourceState, read_record
from services.metrics.windows.store import StoredWindow
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.transaction import Tx

# Sources are a moment apart: a window is judged when the next but one has begun.
GRACE = WINDOW_SECONDS
MAX_JUDGED = 120

# By source and the start of the window.
_Newest = dict[tuple[bytes, int], tuple[SourceState, Window]]


async def take_windows(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
    """Store the newest state of each source, then judge the runs whose windows have closed."""
    newest: _Newest = {}
    rejected = []
    for record in records:
        try:
            state = read_record(record)
        except InvalidEvent as invalid:
            rejected.append(InvalidRecord(record, str(invalid.reason), invalid.detail))
            continue
        # Each state has the newest windows only, so all states count, not just the last one.
        if state is None:
            continue
        for window in state.source.windows:
            known = newest.get((state.key, window.starts_at))
            if known is None or known[0].version <= state.version:
                newest[state.key, window.starts_at] = state, window
    newest = await _possible(tx, newest)
    if newest:
        windows = [newest[key] for key in sorted(newest)]  # the order in which rows are locked
        num_stored = await store_windows.put(tx.connection, windows)
        tx.after_commit(lambda: WINDOWS_STORED.inc(num_stored))
        by_run: dict[str, list[tuple[SourceState, Window]]] = {}
        for state, window in windows:
            by_run.setdefault(state.run_id, []).append((state, window))
        for run_id, of_run in sorted(by_run.items()):
            await _judge(tx, run_id, of_run)
    return rejected


async def _possible(tx: Tx, newest: _Newest) -> _Newest:
    """Those of ranks and pods that their run can have."""
    some = {state.run_id for state, _ in newest.values() if state.number >= RANKS_OF_SLOT}
    if not some:
        return newest
    of_run = await ranks.of_runs(tx.connection, some)
    return {
        key: (state, window)
        for key, (state, window) in newest.items()
        if state.number < of_run.get(state.run_id, RANKS_OF_SLOT)
    }


async def _judge(tx: Tx, run_id: str, windows: Sequence[tuple[SourceState, Window]]) -> None:
    starts = [window.starts_at for _, window in windows]
    next_window, before = await store_windows.lock_health(tx.connection, run_id, min(starts))
    end = min(max(starts) - GRACE, next_window + MAX_JUDGED * WINDOW_SECONDS)
    if next_window >= end:
        return
    one, _ = windows[0]
    run = await store.lock_run(tx.connection, run_id, one.job_id, one.tenant_id, one.attempt)
    watched = await watched_of(tx.connection, run.job_id)
    stored = await store_windows.of_run(tx.connection, one.job_id, run_id, next_window, end)
    by_start: dict[int, list[StoredWindow]] = {}
    for each in stored:
        by_start.setdefault(each.window.starts_at, []).append(each)
    after = before
    for starts_at in sorted(by_start):
        window = store_windows.run_window(by_start[starts_at])
        after, changes = health.judge(after, window.with_losses(watched.losses))
        for change in changes:
            await _announce(tx, run, change)
    await store_windows.set_health(tx.connection, run_id, end, after)


async def _announce(tx: Tx, run: store.RunRow, change: Change) -> None:
    finding = change.finding
    if not change.is_raised:
        await alerts.clear(tx, run, finding.alert, f"no longer so: {finding.detail}")
    elif run.state == RunState.RUNNING:
        await alerts.raise_about_run(tx, run, finding)
