"""The newest live windows of a job, all sources of each together."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from services.metrics.core.windows import WINDOW_SECONDS, is_of_all_ranks
from services.metrics.series.queries import WindowsQuery
from services.metrics.windows import store as store_windows
from services.metrics.windows.store import StoredWindow

# Rows of ranks and pods that one answer is made of.
MAX_ROWS = 20_000
MAX_PODS_SHOWN = 64


async def page(connection: asyncpg.Connection, query: WindowsQuery) -> dict[str, Any]:
    """The answer to `/windows`."""
    rows = await store_windows.of_job(
        connection, query.job_id, query.after + 1, query.limit, MAX_ROWS
    )
    by_window: dict[tuple[int, int], list[StoredWindow]] = {}
    for row in rows:
        by_window.setdefault((row.window.starts_at, row.attempt), []).append(row)
    if len(rows) == MAX_ROWS and len(by_window) > 1:
        del by_window[min(by_window)]  # not all of its rows may be here
    newest = sorted(by_window)[-query.limit :]
    return {
        "job_id": query.job_id,
        "window_seconds": WINDOW_SECONDS,
        "windows": [_window(*key, by_window[key]) for key in newest],
    }


def _window(starts_at: int, attempt: int, rows: Sequence[StoredWindow]) -> dict[str, Any]:
    run = store_windows.run_window(rows)
    slowest = sorted(run.rates, key=lambda pod: run.rates[pod])[:MAX_PODS_SHOWN]
    return {
        "starts_at": starts_at,
        "attempt": attempt,
        "steps_per_second": run.steps_per_second,
        "slowest_share": run.slowest_share,
        "straggler_ratio": run.straggler_ratio,
        "slowest_rank": run.slowest_rank,
        "pods": {pod: run.rates[pod] for pod in slowest},
        "num_pods": len(run.rates),
        "utilisation_percent": run.mean_utilisation,
        "series": {
            name: {
                "num_finite": statistics.num_finite,
                "num_not_finite": statistics.num_not_finite,
                "mean": statistics.mean,
                "deviation": statistics.deviation,
                "low": statistics.low,
                "high": statistics.high,
            }
            for row in rows
            for name, statistics in sorted(row.window.series.items())
            if not is_of_all_ranks(name)
        },
    }
