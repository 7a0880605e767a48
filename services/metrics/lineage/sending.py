"""Sends OpenLineage events to each endpoint, in the order in which they were written.

One event at a time: a service that gets COMPLETE before START shows a run that goes on for ever. So
an endpoint that is away holds back its own events alone, in Postgres: at most 100,000, for 7 days.
An event whose sender died may come twice; it is the same event then.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpcore

from drivetrain_schemas.openlineage import ENDPOINT
from services.metrics.core.lineage import Endpoint, outcome_of, wait_seconds
from services.metrics.core.webhooks import Networks
from services.metrics.instruments import DELIVERIES, LINEAGE_AGE
from services.metrics.lineage import store
from services.metrics.lineage.store import Waiting
from services.metrics.webhooks import calling
from services.metrics.webhooks import store as store_deliveries
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.repeating import repeat
from services.runtime.service import Platform

log = logs.get()

SEND_SECONDS = 10.0
LOOK_SECONDS = 1.0
TRIM_SECONDS = 60.0
MAX_SENT = 1000  # until it looks how many wait
MAX_WAITING = 100_000


async def deliver(endpoints: Sequence[Endpoint], networks: Networks, platform: Platform) -> None:
    """Until cancelled."""
    async with asyncio.TaskGroup() as group:
        for endpoint in endpoints:
            group.create_task(Sender(endpoint, networks, platform.database).run(platform))
        await platform.stopping.wait()


class Sender:
    """Sends to one endpoint."""

    def __init__(self, endpoint: Endpoint, networks: Networks, database: Database) -> None:
        self._endpoint = endpoint
        self._networks = networks
        self._database = database
        parts = urlsplit(endpoint.url)
        self._url = (parts if parts.path.strip("/") else parts._replace(path=ENDPOINT)).geturl()

    async def run(self, platform: Platform) -> None:
        trimmed_at = platform.clock.monotonic()

        async def work() -> None:
            nonlocal trimmed_at
            await self.send_all()
            if platform.clock.monotonic() - trimmed_at >= TRIM_SECONDS:
                trimmed_at = platform.clock.monotonic()
                await self.trim()

        await repeat(work, platform.clock, LOOK_SECONDS, "lineage waits for Postgres")

    async def send_all(self) -> int:
        """Send what is due, until one fails, `MAX_SENT` at most. Returns how many were sent."""
        num_sent = 0
        async with calling.connections(self._networks) as pool:
            while num_sent < MAX_SENT and await self._send_next(pool):
                num_sent += 1
        async with self._database.connection() as connection:
            age = await store.oldest_seconds(connection, self._endpoint.queue)
        LINEAGE_AGE.labels(self._endpoint.name).set(age)
        return num_sent

    async def trim(self) -> None:
        async with self._database.connection() as connection:
            num = await store.trim(connection, self._endpoint.queue, MAX_WAITING)
        if num:
            DELIVERIES.labels(self._endpoint.queue, "dropped").inc(num)
            log.warning("lineage dropped: too many wait", endpoint=self._endpoint.name, num=num)

    async def _send_next(self, pool: httpcore.AsyncConnectionPool) -> bool:
        """True where there may be more to do at once."""
        async with self._database.connection() as connection:
            waiting = await store.begin(connection, self._endpoint.queue, 2 * SEND_SECONDS)
        if waiting is None:
            return False
        status, error = await self._post(pool, waiting)
        outcome = outcome_of(status, waiting.num_tries, waiting.age_seconds)
        async with self._database.connection() as connection:
            if outcome == "failed":
                wait = wait_seconds(waiting.num_tries)
                await store_deliveries.again(connection, waiting.id, wait)
            else:
                await store_deliveries.end(connection, waiting.id)
        DELIVERIES.labels(self._endpoint.queue, outcome).inc()
        if outcome != "sent":
            log.warning(
                "lineage not sent",
                endpoint=self._endpoint.name,
                event_id=waiting.event_id,
                num_tries=waiting.num_tries,
                outcome=outcome,
                error=error,
            )
        return outcome != "failed"

    async def _post(
        self, pool: httpcore.AsyncConnectionPool, waiting: Waiting
    ) -> tuple[int | None, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "drivetrain"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        try:
            async with asyncio.timeout(SEND_SECONDS):
                status = await calling.post(pool, self._url, headers, waiting.body.encode())
        except calling.FAILURES as failed:
            return None, f"{type(failed).__name__}: {failed}"[:300]
        return status, f"it answered {status}"
