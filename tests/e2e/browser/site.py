"""The gateway's pages on a real port, over a real read model, for a real browser."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from drivetrain_schemas.envelope import Event
from services.runtime.operations import serve, server
from tests.handlers.gateway.model import Answer, Model, Server, serving
from tests.handlers.gateway.test_fleet_page import answer as fleet_answer


@dataclass(slots=True)
class Site:
    """Start it, stop it, start it again: the port stays the same."""

    model: Model
    port: int
    assets: Path
    http: Server | None = None
    # The number of steps in the metrics service's responses, the series that it has beside the
    # loss, the times of attempts, the lines of the log, what the pods use by rank, the items of
    # its media, and what was asked of it.
    num_steps: int = 200
    other_series: tuple[str, ...] = ()
    times: tuple[dict[str, Any], ...] = ()
    log: tuple[str, ...] = ("epoch 1 <b>done</b>",)
    used: dict[int, dict[str, float]] = field(default_factory=dict)
    # The lines of the cost report, and what is spent of budgets.
    report: list[dict[str, Any]] = field(default_factory=lambda: [{"is_complete": True}])
    budgets: list[dict[str, Any]] = field(default_factory=list)
    media: list[dict[str, Any]] = field(default_factory=list)
    # The newest live windows of a job.
    windows: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # What services answer to commands.
    answer: Answer = lambda _: ()
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    async def start(self) -> None:
        self.http = await self._stack.enter_async_context(
            serving(
                self.model,
                answer=self._answer,
                forward=self._forward,
                assets_directory=self.assets,
            )
        )
        running = server(self.http.app, "127.0.0.1", self.port)
        task = asyncio.create_task(serve(running, self.http.platform.stopping))
        self._stack.push_async_callback(self._end, task)
        async with asyncio.timeout(10):
            while not running.started:
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def _end(self, task: asyncio.Task[None]) -> None:
        assert self.http is not None
        self.http.platform.stopping.set()
        await task

    async def sign_in(self, browser: Browser, **context: Any) -> tuple[BrowserContext, Page]:
        """A browser that has followed a one-time link."""
        assert self.http is not None
        opened = await browser.new_context(**context)
        page = await opened.new_page()
        link = (await self.http.client.post("/v1/login-links")).json()["url"]
        await page.goto(link.replace("http://localhost:8480", self.url))
        await page.wait_for_url(f"{self.url}/")
        return opened, page

    def _answer(self, command: Event[Any]) -> Sequence[Event[Any]]:
        return self.answer(command)

    async def _forward(self, part: str, path: str, parameters: Any) -> Any:
        given = {**(parameters or {})}
        self.asked.append((path, given))
        if path == "/series":
            names = ("loss", *self.other_series)
            last = {"num_samples": self.num_steps, "last_step": self.num_steps - 1}
            series = [{"name": name, **last, "first_step": 0, "last_value": 0.5} for name in names]
            counts = {"num_series": len(names), "num_samples_left_out": 7}
            return {"job_id": given["job_id"], "series": series, "next": None, **counts}
        if path == "/chart":
            return self._chart(given)
        if path == "/times":
            return {"job_id": given["job_id"], "attempts": self.times}
        if path == "/system":
            ranks = [
                {"rank": rank, "series": [{"name": name, "last_step": 199, "last_value": value}
                                          for name, value in figures.items()]}
                for rank, figures in self.used.items()
            ]  # fmt: skip
            return {"job_id": given["job_id"], "ranks": ranks, "next": None}
        if path.startswith("/chargeback/"):
            return self.report
        if path.startswith("/fleet/"):
            return fleet_answer(given["by"], 28 if given["step"] == "day" else 48, given["step"])
        if path.startswith("/budgets/"):
            return {"budgets": self.budgets}
        if path == "/windows":
            return {"job_id": given["job_id"], "window_seconds": 30, "windows": self.windows}
        if path == "/media":
            return self._media(given)
        if path == "/logs":
            return self._lines(given)
        if path == "/next":
            point = {"learning_rate": 0.0123, "width": 128, "optimizer": "adam"}
            why = "the model expects most where learning_rate is near 0.01"
            step = {"kind": "propose", "number": 300, "hyperparameters": point, "why": why}
            spent, limits = {"device_hours": 3.25, "cost_usd": 1.5}, {"device_hours": 8.0}
            sentence = "The next free slot gets trial 300"
            return {"sentence": sentence, "next": step, "spent": spent, "limits": limits}
        return {"charged_micro_usd": 133, "accruing_micro_usd": 1_500_000 - 133,
                "total_micro_usd": 1_500_000}  # fmt: skip

    def _media(self, given: dict[str, Any]) -> dict[str, Any]:
        name, to_step = given.get("name"), given.get("to_step")
        if name is None:
            first = {one["name"]: one for one in reversed(self.media)}
            steps = {name: [one["step"] for one in self.media if one["name"] == name]
                     for name in first}  # fmt: skip
            return {"names": [
                {"name": name, "media": first[name]["media"], "num_steps": len(set(steps[name])),
                 "first_step": min(steps[name]), "last_step": max(steps[name])}
                for name in sorted(first)]}  # fmt: skip
        found = [one for one in self.media if one["name"] == name]
        found = [one for one in found if to_step is None or one["step"] <= to_step]
        last = sorted({one["step"] for one in found})[-given["limit"] :]
        return {"items": [dict(one) for one in found if one["step"] in last]}

    def _chart(self, given: dict[str, Any]) -> dict[str, Any]:
        """The loss under every name; attempt 2 begins at step 100."""
        to_step = min(self.num_steps - 1, given["to_step"] or self.num_steps)
        steps = list(range(given["from_step"] or 0, to_step + 1))
        curve = {
            "steps": 0,
            "from_step": 0,
            "values": [2.3 * math.exp(-step / 60) for step in steps],
            "lows": None,
            "highs": None,
            "not_finite": [],
        }
        spans = ((1, 0, 99), (2, 100, 199))
        attempts = [{"attempt": n, "first_step": low, "last_step": high} for n, low, high in spans]
        return {"job_id": given["job_id"], "width": 1, "is_whole": True, "next": "next",
                "attempts": attempts, "steps": [steps],
                "series": dict.fromkeys(given["name"], curve)}  # fmt: skip

    def _lines(self, given: dict[str, Any]) -> dict[str, Any]:
        """A request searches 300 lines at most."""
        text, level = (given.get("search") or "").lower(), given.get("level")
        is_wanted = [text in line.lower() and (level or "") in line.lower() for line in self.log]
        after, end = given.get("after"), given.get("before")
        if after is None:
            end = len(self.log) if end is None else end
            begin = max(0, end - (300 if text or level else given["tail"]))
        else:
            begin, end = after, min(len(self.log), after + given["limit"])
        lines = [
            {"position": at, "attempt": 1, "rank": 1, "number": at, "line": self.log[at],
             "level": "error" if self.log[at].startswith("error") else None}
            for at in range(begin, end) if is_wanted[at]
        ]  # fmt: skip
        return {"job_id": given["job_id"], "lines": lines, "searched_from": begin, "next": end,
                "is_complete": end == len(self.log) if after is not None else begin == 0,
                "num_lines": len(self.log), "num_dropped_bytes": 0}  # fmt: skip
