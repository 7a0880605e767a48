"""`status` and `stop`: commands for a second terminal, about the platform in a data directory.

In: the lock (which process runs) and `state.json` (written by the supervisor on every change). Out:
one row per part, as a table or JSON; exit code 0 when every part is ready, 1 when one is not, 4
when nothing runs. Only `stop` changes a running platform, by a signal.
"""

import asyncio
import json
import signal
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.runtime import cgroups
from services.runtime.disk import fullest, warning
from services.standalone.home import Home, holder_of
from services.standalone.identity import is_alive, send_signal, wait_gone
from services.standalone.options import Options
from services.standalone.record import Row, read_record

EXIT_NOT_READY = 1
EXIT_NOT_RUNNING = 4
STOP_TIMEOUT_S = 90.0

GOOD_STATES = ("ready", "done", "outside")
COLOURS = {"ready": "green", "done": "green", "outside": "green", "failed": "red"}


def read_status(home: Home, now: datetime) -> dict[str, Any]:
    """Every part with its state, pid, restarts, port and uptime."""
    holder = holder_of(home)
    path, disk = fullest(home.root) if home.root.is_dir() else (home.root, None)
    return {
        "home": str(home.root),
        "disk": {"free_bytes": disk.free_bytes, "space": disk.space} if disk else None,
        "warning": warning(disk, path) if disk else None,
        "why_pods_have_no_limits": cgroups.why_none() or None,
        "is_running": holder is not None,
        "pid": holder.identity.pid if holder else None,
        "since": holder.since if holder else None,
        "parts": [
            _part(row, now, is_running=holder is not None) for row in read_record(home.state).rows
        ],
    }


def status(options: Options) -> int:
    content = read_status(Home(options.home), datetime.now(UTC))
    if options.output == "json":
        print(json.dumps(content, indent=2))
    else:
        _print_table(content)
    if not content["is_running"]:
        return EXIT_NOT_RUNNING
    is_good = all(part["state"] in GOOD_STATES for part in content["parts"])
    return 0 if is_good and content["parts"] else EXIT_NOT_READY


def stop(options: Options) -> int:
    """Signal the platform to stop and wait until it has."""
    home = Home(options.home)
    holder = holder_of(home)
    if holder is None:
        print(f"Nothing runs in {home.root}.")
        return EXIT_NOT_RUNNING
    send_signal(holder.identity, signal.SIGTERM)
    print(f"Stopping the platform with pid {holder.identity.pid} ...")
    if asyncio.run(wait_gone(holder.identity, STOP_TIMEOUT_S)):
        print("Stopped.")
        return 0
    print(f"It still runs after {STOP_TIMEOUT_S:.0f} s; see {home.logs}.")
    return EXIT_NOT_READY


def _part(row: Row, now: datetime, *, is_running: bool) -> dict[str, Any]:
    alive = row.identity is not None and is_alive(row.identity)
    started = row.started_at if alive else None
    uptime = now - datetime.fromisoformat(started) if started else None
    return {
        **row.model_dump(exclude_unset=True, exclude={"start_ticks", "boot_id"}),
        "state": _state(row, alive=alive, is_running=is_running),
        "pid": row.pid if alive else None,
        "uptime_s": round(uptime.total_seconds()) if uptime else None,
    }


def _state(row: Row, *, alive: bool, is_running: bool) -> str:
    if not is_running and row.state not in ("outside", "failed"):
        # Processes of a killed platform may still run; the next start ends them.
        return "left over" if alive else "stopped"
    if row.state == "ready" and not alive:
        # The supervisor has not recorded its end: on a full disk it cannot.
        return "restarting"
    return row.state or "unknown"


def _print_table(content: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if content["is_running"]:
        console.print(f"{content['home']}: pid {content['pid']}, since {content['since']}")
    else:
        console.print(f"{content['home']}: not running")
    if content["warning"]:
        console.print(f"[bold yellow]{escape(content['warning'])}[/bold yellow]")
    if why := content["why_pods_have_no_limits"]:
        console.print(escape(f"Memory and processes of pods have no limit: {why}"))
    table = Table(box=None, pad_edge=False)
    for name in ("part", "state", "pid", "restarts", "port", "uptime"):
        table.add_column(name, justify="left" if name in ("part", "state") else "right")
    for part in content["parts"]:
        state = part["state"]
        colour = COLOURS.get(state, "yellow")
        if state == "not ready" and (since := part.get("since")):
            state += f" since {datetime.fromisoformat(since):%H:%M:%S} UTC"
        table.add_row(
            escape(part["name"]),
            f"[{colour}]{escape(state)}[/{colour}]",
            *(_cell(part.get(name)) for name in ("pid", "restarts", "port")),
            _duration(part.get("uptime_s")),
        )
    console.print(table)


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
