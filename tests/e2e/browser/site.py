"""The gateway's pages on a real port, over a real read model, for a real browser."""

import asyncio
import math
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from services.runtime.operations import serve, server
from tests.handlers.gateway.model import Model, Server, serving


@dataclass(slots=True)
class Site:
    """Start it, stop it, start it again: the port stays the same."""

    model: Model
    port: int
    assets: Path
    http: Server | None = None
    # The number of steps in the metrics service's response.
    num_steps: int = 200
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    async def start(self) -> None:
        self.http = await self._stack.enter_async_context(
            serving(self.model, forward=self._forward, assets_directory=self.assets)
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

    async def _forward(self, part: str, path: str, parameters: Any) -> Any:
        if path == "/samples":
            steps = list(range(parameters["from_step"], self.num_steps))
            loss = [round(2.3 * math.exp(-step / 60), 4) for step in steps]
            series = {"steps": steps, "values": loss, "num_samples": len(steps)}
            return {
                "job_id": parameters["job_id"],
                "series": {"loss": {**series, "is_downsampled": False}},
            }
        if path == "/logs":
            lines = [
                {"position": 0, "attempt": 1, "rank": 1, "number": 0, "line": "epoch 1 <b>done</b>"}
            ]
            fresh = lines if not parameters["after"] else []
            return {
                "job_id": parameters["job_id"], "lines": fresh, "next": 1, "num_lines": 1,
                "num_dropped_bytes": 0,
            }  # fmt: skip
        return {"charged_micro_usd": 133, "accruing_micro_usd": 1_500_000 - 133,
                "total_micro_usd": 1_500_000}  # fmt: skip
