"""Leases of runs: heartbeats of their pods, and beacons of the scheduler itself, on `reports`.

A heartbeat is accepted when its token is that of the run it names, its pod belongs to this run, and
the run is live under that fence; all others are counted and ignored. The newest of each pod is
stored, at most once a second, until its run ends. Beacons are published to every partition of the
topic and received by the same consumer: missing heartbeats are only counted while beacons arrive
(`core.leases`). Everything else is in memory and starts empty with the process.
"""

import uuid
from collections.abc import Iterable, Sequence, Set

from aiokafka.partitioner import murmur2

from drivetrain_schemas.envelope import Event, InvalidEvent, encode
from drivetrain_schemas.ids import DEFAULT_TENANT
from drivetrain_schemas.reports import PodHeartbeat, SchedulerBeacon
from drivetrain_schemas.runs import RunState
from drivetrain_schemas.topics import REPORTS
from services.runtime import logs
from services.runtime.bus import OutRecord, PublishFailed, Record
from services.runtime.clock import Clock
from services.runtime.parking import InvalidRecord
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Platform
from services.runtime.transaction import Tx
from services.scheduler import instruments, store_pods
from services.scheduler.core.leases import Steadiness, after_beacon, silence_limit
from services.scheduler.store_runs import RunRow

log = logs.get()


class Leases:
    def __init__(self, clock: Clock, tokens: RunTokens, *, lease: float, interval: float) -> None:
        self._clock = clock
        self._tokens = tokens
        self._lease = lease
        self._interval = interval
        # Beacons of other or earlier processes do not count.
        self._beacon_source = f"beacon-{uuid.uuid4().hex[:12]}"
        self._num_beacons = 0
        self._steady: dict[int, Steadiness] = {}
        self._watched_since: dict[str, float] = {}
        self._heard: dict[str, float] = {}

    def watch_runs(self, run_ids: Set[str]) -> None:
        """These runs are started; their leases begin when they are first watched."""
        now = self._clock.monotonic()
        self._watched_since = {run_id: self._watched_since.get(run_id, now) for run_id in run_ids}
        self._heard = {run_id: at for run_id, at in self._heard.items() if run_id in run_ids}

    def news(self, runs: Iterable[RunRow]) -> frozenset[str]:
        """The running ones whose heartbeats stopped, and the suspect ones whose heartbeats
        resumed."""
        limit = silence_limit(
            self._steady,
            REPORTS.partitions,
            self._clock.monotonic(),
            lease=self._lease,
            interval=self._interval,
        )
        return frozenset(
            run.run_id
            for run in runs
            if (run.state is RunState.RUNNING and self._is_silent(run.run_id, limit))
            or (run.state is RunState.SUSPECT and self.has_recent_heartbeat(run.run_id))
        )

    def _is_silent(self, run_id: str, limit: float | None) -> bool:
        if limit is None or run_id not in self._watched_since:
            return False
        return max(self._watched_since[run_id], self._heard.get(run_id, 0.0)) < limit

    def has_recent_heartbeat(self, run_id: str) -> bool:
        """A heartbeat of it arrived within the last lease."""
        heard_at = self._heard.get(run_id)
        return heard_at is not None and self._clock.monotonic() - heard_at <= self._lease

    async def on_reports(self, tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        """The batch handler of `reports`."""
        # Keyed by everything that is checked, so that a forged heartbeat displaces none in its
        # batch.
        newest: dict[tuple[str, str, int], PodHeartbeat] = {}
        rejected: list[InvalidRecord] = []
        for record in records:
            try:
                event = self._tokens.read(record)
            except InvalidEvent as invalid:
                rejected.append(InvalidRecord(record, str(invalid.reason), invalid.detail))
                continue
            payload = None if event is None else event.payload
            if isinstance(payload, SchedulerBeacon):
                self._on_beacon(record.partition, payload)
            elif isinstance(payload, PodHeartbeat):
                newest[(payload.pod_id, payload.run_id, payload.fence)] = payload
        await self._keep(tx, list(newest.values()))
        return rejected

    async def send_beacons(self, platform: Platform) -> None:
        """A task of the service: one beacon to each partition, every interval."""
        topic = platform.settings.topic_prefix + REPORTS.name
        keys = partition_keys(self._beacon_source, REPORTS.partitions)
        while True:
            self._num_beacons += 1
            records = [self._beacon(topic, key) for key in keys]
            try:
                await platform.publisher.publish(records)
            except PublishFailed as failed:
                instruments.BEACON_FAILURES.inc()
                log.warning("beacon not published", error=str(failed))
            await self._clock.sleep(self._interval)

    def _beacon(self, topic: str, key: str) -> OutRecord:
        event = Event(
            event_id=uuid.uuid4().hex,
            source="/drivetrain/scheduler",
            occurred_at=self._clock.now(),
            tenant_id=DEFAULT_TENANT,
            payload=SchedulerBeacon(run_id=key, number=self._num_beacons),
            subject=key,
        )
        headers, record_key, value = encode(event)
        return OutRecord(topic, record_key, value, tuple(headers))

    def _on_beacon(self, partition: int, beacon: SchedulerBeacon) -> None:
        if beacon.run_id.startswith(self._beacon_source):
            known = self._steady.get(partition)
            self._steady[partition] = after_beacon(known, self._clock.monotonic(), self._interval)

    async def _keep(self, tx: Tx, heartbeats: Sequence[PodHeartbeat]) -> None:
        live = await store_pods.live_fences(tx.connection, {beat.pod_id for beat in heartbeats})
        current = [
            beat for beat in heartbeats if live.get(beat.pod_id) == (beat.run_id, beat.fence)
        ]
        instruments.STALE_HEARTBEATS.inc(len(heartbeats) - len(current))
        await store_pods.put_heartbeats(tx.connection, current)
        now = self._clock.monotonic()
        # Only started runs are watched, so this stays as small as the platform.
        for beat in current:
            if beat.run_id in self._watched_since:
                self._heard[beat.run_id] = now


def partition_keys(source: str, num_partitions: int) -> tuple[str, ...]:
    """One key for each partition, by the partitioner of the Kafka clients that we support."""
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < num_partitions:
        key = f"{source}-{number}"
        keys.setdefault((murmur2(key.encode()) & 0x7FFFFFFF) % num_partitions, key)
        number += 1
    return tuple(keys[partition] for partition in sorted(keys))
