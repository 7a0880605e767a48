"""What the demo does and prints, from the submission to the summary.

It uses what is available to every user: the command line, the REST API and `kill -9`.
"""

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from examples.demo.victim import process_of_rank
from services.standalone.parts import Plan

EXAMPLE = Path("examples/01-digits/job.yaml")
STUDY = Path("examples/02-study/study.yaml")
KILL_AT = 0.4
POLL_SECONDS = 0.25
FINAL = ("succeeded", "failed", "cancelled", "stopped", "rejected")


@dataclass(slots=True)
class Kill:
    """When and where the demo killed a process of its own job."""

    at: float
    step: int


class Story:
    def __init__(self, plan: Plan, client: httpx.AsyncClient, console: Console) -> None:
        self._plan = plan
        self._client = client
        self._console = console

    async def run(self, *, stays: bool) -> int:
        began = time.monotonic()
        job_id = await self._submit()
        if job_id is None:
            return 1
        job = await self._follow(job_id)
        if job["state"] == "rejected":
            self._say(f"\nThe request was refused: {job['refusal']['detail']}", style="bold red")
            return 1
        await self._summary(job, time.monotonic() - began)
        if stays:
            self._say(f"\nTry next:  {self._command_line()} open latest")
            self._say(f"           {self._command_line()} study submit {STUDY} --wait")
            self._say("           Ctrl-C stops everything\n")
        return 0 if job["state"] == "succeeded" else 1

    def _command_line(self) -> str:
        """The command that reaches this platform from any other terminal."""
        home = self._plan.home.root
        is_found = home == (Path.home() / ".drivetrain").resolve()
        where = "" if is_found else f"DRIVETRAIN_HOME={shlex.quote(str(home))} "
        return f"{where}.venv/bin/drivetrain"

    async def _submit(self) -> str | None:
        self._say(f"\n$ drivetrain job submit {EXAMPLE}", style="bold")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "drivetrain.cli", "job", "submit", str(EXAMPLE),
            "--output", "json", stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "DRIVETRAIN_HOME": str(self._plan.home.root)},
        )  # fmt: skip
        output, _ = await process.communicate()
        if process.returncode != 0:
            self._say("the submission failed", style="red")
            return None
        job = json.loads(output)
        self._say(f"job   {job['job_id']}\npage  {job['job_url']}\n")
        return str(job["job_id"])

    async def _follow(self, job_id: str) -> dict[str, Any]:
        """Show progress until the job ends; kill rank 1 on the way."""
        kill: Kill | None = None
        is_reported = False
        columns = (
            TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("steps  ETA"), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(
            *columns, console=self._console, disable=not self._console.is_terminal
        ) as bar:
            task = bar.add_task("waiting", total=None)
            reported = -1
            while True:
                job = await self._get(f"/v1/jobs/{job_id}")
                step, total = _steps(job)
                text = f"{job['state']}, attempt {job['attempt'] or 1}"
                bar.update(task, description=text, completed=step, total=total or None)
                reported = self._plain_progress(text, step, total, reported)
                if job["state"] in FINAL:
                    return job
                if kill is None and total and step >= KILL_AT * total and job["attempt"] == 1:
                    kill = await self._kill_rank(job_id, step)
                if kill and not is_reported and job["attempt"] == 2 and step > 0:
                    is_reported = await self._recovery(job_id, job, kill)
                await asyncio.sleep(POLL_SECONDS)

    async def _kill_rank(self, job_id: str, step: int) -> Kill | None:
        pid = process_of_rank(self._plan.home.pods / job_id / "1", rank=1)
        if pid is None:
            return None
        self._say(f"\n$ kill -9 {pid}    # rank 1 of 2, at step {step}", style="bold red")
        os.kill(pid, signal.SIGKILL)
        return Kill(time.monotonic(), step)

    async def _recovery(self, job_id: str, job: dict[str, Any], kill: Kill) -> bool:
        """Report the recovery once it is complete: the first new step of the second attempt."""
        timeline = await self._get(f"/v1/jobs/{job_id}/timeline", limit=500)
        restored = [
            item["data"] for item in timeline["items"] if item["type"] == "checkpoint.restored"
        ]
        step, _ = _steps(job)
        if not restored or step <= restored[0]["step"]:
            return False
        seconds = time.monotonic() - kill.at
        lost = max(0, kill.step - restored[0]["step"])
        cost = await self._cost(job, seconds)
        self._say(
            f"recovered automatically in {seconds:.1f} s: attempt 2 resumed from checkpoint "
            f"{restored[0]['checkpoint_id']} (step {restored[0]['step']}), "
            f"{lost} steps repeated; the interruption cost {cost}\n",
            style="green",
        )
        return True

    async def _cost(self, job: dict[str, Any], seconds: float) -> str:
        try:
            answer = await self._client.post(
                "/v1/estimates", json={"spec": job["spec"], "seconds": max(seconds, 0.001)}
            )
            answer.raise_for_status()
            return _dollars(answer.json()["estimated_micro_usd"])
        except httpx.HTTPError as error:
            return f"(no estimate: {error})"

    async def _summary(self, job: dict[str, Any], seconds: float) -> None:
        checkpoints = await self._get(f"/v1/jobs/{job['job_id']}/checkpoints")
        committed = checkpoints["checkpoints"]
        best = job.get("best") or {}
        is_good = job["state"] == "succeeded"
        self._say(f"\nThe job {job['state']}.", style="bold green" if is_good else "bold red")
        step, total = _steps(job)
        rows = {
            best.get("name", "metric").replace("_", " "): _number(best.get("value")),
            "steps": f"{(job.get('result') or {}).get('step', step)} of {total}",
            "attempts": str(job["attempt"]),
            "checkpoints": f"{len(committed)} committed, "
            f"{sum(item['state'] == 'committed' for item in committed)} kept",
            "cost": await self._charged(job),
            "time": f"{seconds:.0f} s",
        }
        for name, value in rows.items():
            self._say(f"  {name:<20} {value}")
        if not is_good:
            self._say(f"  {job.get('detail') or ''}", style="red")

    async def _charged(self, job: dict[str, Any]) -> str:
        """The charge follows soon after the last release. A missing price is not a price of 0."""
        for _ in range(40):
            spend = await self._get(f"/v1/jobs/{job['job_id']}/cost")
            unpriced = [f"no price for {it['device_type']}" for it in spend.get("unpriced", ())]
            is_charged = spend["charged_micro_usd"] > 0 or unpriced
            if spend["accruing_micro_usd"] == 0 and is_charged:
                break
            await asyncio.sleep(POLL_SECONDS)
        total = spend["total_micro_usd"]
        priced = [] if unpriced and not total else [_dollars(total)]
        return ", ".join([*priced, *unpriced])

    async def _get(self, path: str, **parameters: Any) -> dict[str, Any]:
        """Retry while a part of the platform is restarting.

        Also after 404: a restarted gateway may not have read the job's events yet.
        """
        while True:
            try:
                answer = await self._client.get(path, params=parameters)
                if answer.status_code < 500 and answer.status_code != 404:
                    answer.raise_for_status()
                    content: dict[str, Any] = answer.json()
                    return content
            except httpx.TransportError:
                pass
            await asyncio.sleep(POLL_SECONDS)

    def _plain_progress(self, text: str, step: int, total: int, reported: int) -> int:
        """Without a terminal: one line per tenth of the steps."""
        if self._console.is_terminal or not total:
            return reported
        tenth = 10 * step // total
        if tenth != reported:
            self._say(f"  {text}: step {step} of {total}")
        return tenth

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style or None, markup=False, highlight=False)


async def run_demo(plan: Plan, *, stays: bool) -> int:
    """Run the demo on a platform that is up. Returns the exit code."""
    client = httpx.AsyncClient(
        base_url=plan.gateway_url,
        headers={"Authorization": f"Bearer {plan.credentials.api_token}"},
        timeout=10.0,
        trust_env=False,
    )
    async with client:
        return await Story(plan, client, Console(soft_wrap=True)).run(stays=stays)


def _steps(job: dict[str, Any]) -> tuple[int, int]:
    progress = job.get("progress") or {}
    return int(progress.get("step") or 0), int(progress.get("max_steps") or 0)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.6f}"
