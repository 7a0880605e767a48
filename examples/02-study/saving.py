"""Print how much device time the early stops of a study saved.

    python saving.py [STUDY]

STUDY is an id, a name, or `latest`. Each trial that stopped early is compared with the mean of the
trials that trained to the end. The numbers come from `drivetrain study show` and `job show`.
"""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))


def show(*what: str) -> Any:
    command = [DRIVETRAIN, *what, "--output", "json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def device_seconds(job: dict[str, Any]) -> float:
    """From start to end of every run of the job, on each of its devices."""
    return job["devices"] * sum(
        (at(run["ended_at"]) - at(run["starting_at"])).total_seconds() for run in job["runs"]
    )


def at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


def saving(trials: list[tuple[str, float]]) -> str:
    """What to print of (state, device-seconds) of each trial."""
    used = sum(seconds for _, seconds in trials)
    complete = [seconds for state, seconds in trials if state == "completed"]
    num_stopped = sum(state == "stopped" for state, _ in trials)
    if not complete or not num_stopped:
        return f"{used:.0f} device-seconds; no trial stopped early, or none is complete"
    mean = sum(complete) / len(complete)
    stopped = sum(seconds for state, seconds in trials if state == "stopped")
    whole = used - stopped + num_stopped * mean
    return (
        f"{used:.0f} device-seconds, {num_stopped} of {len(trials)} trials stopped early; "
        f"all to the end: {whole:.0f} ({1 - used / whole:.0%} saved)"
    )


def main() -> None:
    study = show("study", "show", sys.argv[1] if len(sys.argv) > 1 else "latest")
    jobs = [(trial["state"], show("job", "show", trial["job_id"])) for trial in study["trials"]]
    print(saving([(state, device_seconds(job)) for state, job in jobs]))


if __name__ == "__main__":
    main()
