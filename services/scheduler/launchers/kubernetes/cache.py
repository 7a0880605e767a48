"""The objects of one kind as the API server last sent them: a list, then a watch from its version.

`run` keeps it current: a watch that ends is continued from the last version, one whose version has
expired (410) begins with a list, and everything is listed again from time to time, so that no lost
change lasts. Without `run`, `refresh` lists.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from services.runtime import logs
from services.scheduler import instruments
from services.scheduler.launchers.base import LauncherUnavailable
from services.scheduler.launchers.kubernetes.api import Api, Object, Refused

log = logs.get()

WATCH_SECONDS = 30
RESYNC_SECONDS = 60.0
# After so long without a watch, what is kept does not count as current.
STALE_SECONDS = 10.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_MAX_TOMBSTONES = 10_000

# What is kept of an object; it has the metadata that tell it apart.
Trim = Callable[[Object], Object]
# Called with an object that changed, and whether it is gone.
OnChange = Callable[[Object, bool], None]


class Cache:
    """`objects` by name; `is_watching` while a watch is open.

    `on_change` is called after each change of one of them.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        on_change: OnChange | None = None,
        *,
        trim: Trim = lambda item: item,
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        self.objects: dict[str, Object] = {}
        self.on_change = on_change
        self._api = api
        self._path = path
        self._query = query
        self._trim = trim
        self._resync_seconds = resync_seconds
        self._resource = path.rpartition("/")[2]
        self._version = ""
        self._listed_at = 0.0
        self._watched_at: float | None = None
        self.is_watching = False
        self._is_running = False
        self._listing = asyncio.Lock()
        # Of objects that are gone: an answer to a call of ours may arrive after that.
        self._tombstones: dict[str, None] = {}

    @property
    def is_current(self) -> bool:
        """A watch is open, or was a moment ago."""
        return self.age_seconds < STALE_SECONDS

    @property
    def age_seconds(self) -> float:
        if self.is_watching:
            return 0.0
        return float("inf") if self._watched_at is None else time.monotonic() - self._watched_at

    async def run(self) -> None:
        """Keep it current until cancelled."""
        self._is_running = True
        try:
            await self._run()
        finally:
            self._is_running = False

    async def current(self) -> dict[str, Object]:
        """`objects`, after a list where nothing keeps them current. Raises LauncherUnavailable."""
        if self._is_running and self.is_current:
            return self.objects
        if self._is_running and self._version:
            seconds = f"{self.age_seconds:.0f} s"
            raise LauncherUnavailable(f"{self._resource} were last updated {seconds} ago")
        try:
            await self.refresh()
        except Refused as refused:
            raise LauncherUnavailable(f"{self._resource} cannot be listed: {refused}") from refused
        return self.objects

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        why = "first"
        while True:
            instruments.KUBERNETES_WATCHES.labels(self._resource, why).inc()
            try:
                if not self._version or time.monotonic() > self._listed_at + self._resync_seconds:
                    await self.refresh()
                await self._watch()
                pause, why = _FIRST_PAUSE, "continued"
            except Refused as refused:
                self._version = ""
                why = "expired" if refused.is_expired else "failed"
                log.warning("objects are listed again", resource=self._resource, error=str(refused))
                if not refused.is_expired:
                    await asyncio.sleep(_LONGEST_PAUSE)
            except LauncherUnavailable as error:
                why = "failed"
                age = self.age_seconds
                instruments.KUBERNETES_CACHE_AGE.labels(self._resource).set(
                    0.0 if age == float("inf") else age
                )
                log.warning("watch interrupted", resource=self._resource, error=str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def refresh(self) -> None:
        """List everything. Raises LauncherUnavailable, Refused."""
        asked_at = time.monotonic()
        async with self._listing:
            if self._listed_at > asked_at:
                return  # by another caller, after this one had asked
            began_at = time.monotonic()
            before = set(self.objects)  # what is created meanwhile may be missing in the list
            listed, version = await self._api.list(self._path, self._query)
            items = [self._trim(item) for item in listed]
            found = {item["metadata"]["name"]: item for item in items}
            for name in before - found.keys():
                self._remove(self.objects[name])
            for item in items:
                self._put(item)
            self._version = version
            self._listed_at = began_at
            self._watched_at = time.monotonic()

    def put_created(self, item: Object) -> None:
        """What a call of ours created, unless the watch has a newer state of it."""
        metadata = item["metadata"]
        if metadata["name"] not in self.objects and metadata["uid"] not in self._tombstones:
            self._put(item)

    async def _watch(self) -> None:
        changes = self._api.watch(self._path, self._query, self._version, WATCH_SECONDS)
        try:
            async with aclosing(changes):
                await self._take(changes)
        finally:
            if self.is_watching:
                self._watched_at = time.monotonic()
            self.is_watching = False

    async def _take(self, changes: AsyncGenerator[Object, None]) -> None:
        async for change in changes:
            self.is_watching = True
            instruments.KUBERNETES_CACHE_AGE.labels(self._resource).set(0.0)
            item = change["object"]
            if change["type"] == "DELETED":
                self._remove(self._trim(item))
            elif change["type"] != "BOOKMARK":
                self._put(self._trim(item))
            self._version = item["metadata"]["resourceVersion"]

    def _put(self, item: Object) -> None:
        name = item["metadata"]["name"]
        before = self.objects.get(name)
        if before is not None and _version(before) == _version(item):
            return
        if before is not None and before["metadata"]["uid"] != item["metadata"]["uid"]:
            self._remove(before)
        self.objects[name] = item
        self._report(item, is_gone=False)

    def _remove(self, item: Object) -> None:
        metadata = item["metadata"]
        self.objects.pop(metadata["name"], None)
        self._tombstones[metadata["uid"]] = None
        while len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._report(item, is_gone=True)

    def _report(self, item: Object, *, is_gone: bool) -> None:
        if self.on_change is not None:
            self.on_change(item, is_gone)


def _version(item: Object) -> str:
    version: str = item["metadata"]["resourceVersion"]
    return version
