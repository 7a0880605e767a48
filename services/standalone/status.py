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
from services.standalone.identity import ProcessIdentity, is_alive, send_signal, wait_gone
from services.standalone.options import Options

EXIT_NOT_READY = 1
EXIT_NOT_RUNNING = 4
STOP_TIMEOUT_S = 90.0

GOOD_STATES = ("ready", "done", "outside")
COLOURS = {"ready": "green", "done": "green", "outside": "green", "failed": "red"}


def read_status(home: Home, now: datetime) -> dict[str, Any]:
    """Every part with its state, pid, restarts, port and uptime."""
    holder = holder_of(home)
    parts = _read_state(home) if holder or home.state.exists() else []
    for part in parts:
        recorded = part.get("pid")
        alive = recorded and is_alive(
            ProcessIdentity(part["pid"], part["start_ticks"], part["boot_id"])
        )
        if holder is None and part["state"] not in ("outside", "failed"):
            # Processes of a killed platform may still run; the next start ends them.
            part["state"] = "left over" if alive else "stopped"
        elif part["state"] == "ready" and not alive:
            # The supervisor has not recorded its end: on a full disk it cannot.
            part["state"] = "restarting"
        part["pid"] = part["pid"] if alive else None
        started = part.get("started_at") if alive else None
        part["uptime_s"] = (
            round((now - datetime.fromisoformat(started)).total_seconds()) if started else None
        )
        for name in ("start_ticks", "boot_id"):
            part.pop(name, None)
    path, disk = fullest(home.root) if home.root.is_dir() else (home.root, None)
    return {
        "home": str(home.root),
        "disk": {"free_bytes": disk.free_bytes, "space": disk.space} if disk else None,
        "warning": warning(disk, path) if disk else None,
        "why_pods_have_no_limits": cgroups.why_none() or None,
        "is_running": holder is not None,
        "pid": holder.identity.pid if holder else None,
        "since": holder.since if holder else None,
        "parts": parts,
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


def _read_state(home: Home) -> list[dict[str, Any]]:
    try:
        parts = json.loads(home.state.read_text())["parts"]
    except (FileNotFoundError, ValueError, KeyError):
        return []
    assert isinstance(parts, list)
    return parts


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
        if state == "not ready":
            state += f" since {datetime.fromisoformat(part['since']):%H:%M:%S} UTC"
        table.add_row(
            part["name"],
            f"[{colour}]{state}[/{colour}]",
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
