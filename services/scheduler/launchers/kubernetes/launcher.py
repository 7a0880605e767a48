"""Pods as pods of a Kubernetes cluster: creates, observes, stops and removes them.

What is observed comes from one cache of all our pods, so it costs no call per pod. A pod is
proven gone by a terminated container, or by the API server that has no such pod; it is never
removed from the API server by force, so a pod on a node that does not answer stays, and holds its
devices, until the cluster has removed it (docs/decisions/0011-kubernetes-pods.md).
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from drivetrain_schemas.pods import PodSpec, StopNotice
from services.runtime import logs
from services.scheduler import instruments
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.base import (
    LaunchBlocked,
    LauncherUnavailable,
    LaunchRefused,
    Observation,
    PodRef,
    Rendezvous,
)
from services.scheduler.launchers.kubernetes import manifest, names
from services.scheduler.launchers.kubernetes.api import Api, Object, Refused
from services.scheduler.launchers.kubernetes.cache import Cache
from services.scheduler.launchers.kubernetes.cluster import PodRules
from services.scheduler.launchers.kubernetes.ends import Ends
from services.scheduler.launchers.kubernetes.events import event_of
from services.scheduler.launchers.kubernetes.known_pods import KnownPods
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from services.scheduler.launchers.kubernetes.reading import has_notice
from services.scheduler.launchers.kubernetes.refusals import API_SERVER, blocked, why_refused

log = logs.get()

# The annotation with the notice needs about a second to reach the pod's files; then the pod is
# deleted, so that its shim gets SIGTERM as well.
NOTICE_LEAD_SECONDS = 2.0
KILL_GRACE_SECONDS = 1
KILL_SECONDS = 3.0
_LOOK_SECONDS = 0.1
# How long the end of a pod is looked for while the object store does not answer.
STORE_SECONDS = 30.0
# A pod that has not been observed for any run for so long belongs to none.
ORPHAN_SECONDS = 300.0
_KILLED = StopNotice(reason="gang", deadline_seconds=0.0)


class KubernetesLauncher:
    can_run_images = True
    start_seconds = 1200.0  # an image may have to be pulled

    def __init__(self, api: Api, rules: PodRules, ends: Ends, nodes: KubernetesNodes) -> None:
        self._api = api
        self._rules = rules
        self._ends = ends
        self._nodes = nodes
        self._path = f"/api/v1/namespaces/{rules.namespace}"
        self._cache = Cache(
            api,
            f"{self._path}/pods",
            {"labelSelector": names.ours(rules.platform)},
            self._on_change,
        )
        self._known = KnownPods(nodes.why_unreachable)
        self._wake: Callable[[], None] = lambda: None
        # By pod id.
        self._deletions: dict[str, asyncio.Task[None]] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._observed_at: dict[str, float] = {}  # by the monotonic clock
        self._looked_at = -ORPHAN_SECONDS
        # Refused because another platform has their names, and not killed yet.
        self._never_made: set[str] = set()

    async def free_ports(self, ports: Sequence[int]) -> Collection[int]:
        """All: each pod has an address of its own."""
        return ports

    def rendezvous(self, job_id: str, attempt: int) -> Rendezvous:
        return Rendezvous(names.host_of_first(job_id, attempt))

    async def launch(self, spec: PodSpec) -> None:
        """Create the pod, then what belongs to it: a pod without its Secret does not start."""
        pod = await self._create_pod(spec)
        try:
            service = manifest.service(spec, pod)
            if service is not None:
                await self._create("services", service)
            await self._create("secrets", manifest.secret(spec, pod))
        except LaunchRefused:
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            await self._delete(name, uid, KILL_GRACE_SECONDS)
            raise
        instruments.LAUNCHES.labels("kubernetes").inc()
        log.info("pod launched", pod_id=spec.pod_id, node_id=spec.node_id)

    async def observe(self, pods: Sequence[PodRef]) -> Mapping[str, Observation]:
        await self._cache.current()
        now = self._looked_at = time.monotonic()
        self._observed_at |= dict.fromkeys((pod.pod_id for pod in pods), now)
        return {pod.pod_id: self._see(pod) for pod in pods}

    async def watch(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._cache.run())
                group.create_task(self._delete_orphans())
        finally:
            await self.close()

    async def close(self) -> None:
        """What is under way is left to the next scheduler."""
        tasks = [*self._deletions.values(), *self._settling.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    async def notify(self, pod: PodRef, notice: StopNotice) -> None:
        """The notice as an annotation; a little later SIGTERM, by the deletion of the pod."""
        name = names.pod_name(pod.pod_id)
        found = await self._find(name)
        if found is None or not await self._annotate(name, found["metadata"]["uid"], notice):
            return
        grace = manifest.grace_seconds(notice.deadline_seconds)
        if (before := self._deletions.get(pod.pod_id)) is not None:
            before.cancel()
        task = self._deletions[pod.pod_id] = asyncio.create_task(
            self._delete_soon(name, found["metadata"]["uid"], grace)
        )
        task.add_done_callback(partial(_discard, self._deletions, pod.pod_id))
        seconds = f"{notice.deadline_seconds:g} s"
        await self._tell(found, "StopRequested", f"reason: {notice.reason}; it has {seconds}")

    async def kill(self, pods: Sequence[PodRef]) -> Collection[str]:
        """An error about one pod does not keep the others from being killed."""
        found = await asyncio.gather(*map(self._kill, pods), return_exceptions=True)
        errors = [each for each in found if isinstance(each, BaseException)]
        for error in errors:
            if len(errors) == len(found) or not isinstance(error, LauncherUnavailable):
                raise error
        if errors:
            log.warning("some pods not killed", num_pods=len(errors), error=str(errors[0]))
        return [pod.pod_id for pod, is_gone in zip(pods, found, strict=True) if is_gone is True]

    async def size_bytes(self, job_id: str) -> int:
        """Pods that have ended take no space that the platform could measure."""
        return 0

    async def remove(self, job_id: str) -> None:
        await self._cache.current()
        for known in self._known.of_job(job_id):
            if known.name:
                await self._delete(known.name, known.uid, KILL_GRACE_SECONDS)
        await self._ends.remove(job_id)
        self._known.forget(job_id)

    # Observing

    def _on_change(self, item: Object, is_gone: bool) -> None:
        is_new = self._known.get(item["metadata"]["labels"][names.POD]) is None
        is_old = is_new and item.get("status", {}).get("phase") == "Failed"  # of an earlier run
        if not is_gone and not is_old:
            self._nodes.note_pod(item)
        if self._known.note(item, is_gone):
            self._wake()

    def _see(self, pod: PodRef) -> Observation:
        known = self._known.get(pod.pod_id)
        if known is None:
            return Observation(Sight.ABSENT)
        reading = known.reading
        if known.hopeless is not None and not known.is_proven:
            return Observation(Sight.DEAD, reason=known.hopeless)
        if not reading.is_whole:
            self._settle(pod)
            return Observation(Sight.ALIVE)  # until its result is read, or is given up
        is_open = bool(known.node_id) and not known.is_proven
        unreachable = self._nodes.why_unreachable(known.node_id) if is_open else ""
        wait = known.wait if reading.sight is Sight.CREATED else None
        return Observation(
            reading.sight, reading.end, reason=reading.reason, unreachable=unreachable, wait=wait
        )

    def _settle(self, pod: PodRef) -> asyncio.Task[None]:
        """Read the whole end of a pod that is gone."""
        task = self._settling.get(pod.pod_id)
        if task is None:
            task = self._settling[pod.pod_id] = asyncio.create_task(self._read_end(pod))
            task.add_done_callback(partial(_discard, self._settling, pod.pod_id))
        return task

    async def _read_end(self, pod: PodRef) -> None:
        deadline = time.monotonic() + STORE_SECONDS
        while True:
            try:
                end = await self._ends.read(pod)
                break
            except LauncherUnavailable as error:
                if time.monotonic() > deadline:
                    log.error("a pod's end is not complete", pod_id=pod.pod_id, error=str(error))
                    end = None
                    break
                await asyncio.sleep(1.0)
        known = self._known.get(pod.pod_id)
        reported = None if known is None else known.reading.end
        if reported is not None and end is not None and end.outcome != reported.outcome:
            log.warning("an end in the object store is not the pod's own", pod_id=pod.pod_id)
            end = None
        self._known.settle(pod.pod_id, end)
        self._wake()

    # Starting

    async def _create_pod(self, spec: PodSpec) -> Object:
        """The pod, made now or before. Raises LaunchRefused, LaunchBlocked."""
        wanted = manifest.pod(spec, self._rules, secrets.token_hex(4))
        made = await self._create("pods", wanted)
        if made is not None:
            self._cache.put_created(made)
            return made
        name = names.pod_name(spec.pod_id)
        existing = await self._api.get(f"{self._path}/pods/{name}")
        if existing is None or "deletionTimestamp" in existing["metadata"]:
            raise LaunchBlocked(blocked(API_SERVER, f"pod {name} exists and is being deleted"))
        fence = (existing["metadata"].get("labels") or {}).get(names.FENCE)
        if fence != str(spec.fence) or not self._is_ours(existing):
            self._never_made.add(spec.pod_id)
            detail = (
                "another platform has a pod of the same name in namespace "
                f"{self._rules.namespace}: give each platform a namespace of its own"
            )
            raise LaunchRefused(EndReason(EndKind.FAILED, detail))
        return existing

    async def _create(self, resource: str, wanted: Object) -> Object | None:
        """None where it exists. Raises LaunchRefused, LaunchBlocked, LauncherUnavailable."""
        try:
            return await self._api.create(f"{self._path}/{resource}", wanted)
        except Refused as refused:
            if refused.already_exists:
                return None
            why = why_refused(refused.code, refused.status)
            if isinstance(why, Wait):
                raise LaunchBlocked(why) from refused
            if why is None:
                raise LauncherUnavailable(f"{resource} cannot be created: {refused}") from refused
            raise LaunchRefused(why) from refused

    # Stopping

    async def _kill(self, pod: PodRef) -> bool:
        """True when it is proven gone, and all that can be known of its end is."""
        if pod.pod_id in self._never_made:
            self._never_made.discard(pod.pod_id)
            return True
        name = names.pod_name(pod.pod_id)
        known = self._known.get(pod.pod_id)
        if (deletion := self._deletions.get(pod.pod_id)) is not None:
            deletion.cancel()  # it is no longer waited for
        is_gone = known is not None and known.is_proven
        if not is_gone:
            is_gone = not await self._end(name) or await self._ends_soon(pod)
        if not is_gone:
            return False
        known = self._known.get(pod.pod_id)
        if known is not None and (known.is_settled or known.reading.is_complete):
            return True
        done, _ = await asyncio.wait({self._settle(pod)}, timeout=KILL_SECONDS)
        return bool(done)

    async def _end(self, name: str) -> bool:
        """Annotate it, unless it has a notice, and delete it. False where we have no such pod."""
        found = await self._find(name)
        if found is None:
            return False
        uid = found["metadata"]["uid"]
        if not has_notice(found):
            await self._annotate(name, uid, _KILLED)
            await self._tell(found, "EndedByPlatform", "it did not start, or its run has ended")
        return await self._delete(name, uid, KILL_GRACE_SECONDS)

    async def _ends_soon(self, pod: PodRef) -> bool:
        """Whether it is proven gone within some seconds."""
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            known = self._known.get(pod.pod_id)
            if known is not None and known.is_proven:
                return True
            if known is not None and known.node_id and self._nodes.why_unreachable(known.node_id):
                return False  # it may last for hours
            if not self._cache.is_watching:
                found = await self._find(names.pod_name(pod.pod_id))
                if found is None:
                    return True
                self._known.note(found, False)
            await asyncio.sleep(_LOOK_SECONDS)
        return False

    async def _tell(self, pod: Object, reason: str, message: str) -> None:
        """An Event, for people: nothing depends on it."""
        told = event_of(pod, reason, message, secrets.token_hex(8), datetime.now(UTC))
        try:
            await self._api.create(f"{self._path}/events", told)
        except (Refused, LauncherUnavailable) as error:
            log.warning("event not written", pod=pod["metadata"]["name"], error=str(error))

    async def _find(self, name: str) -> Object | None:
        """Our pod of this name, as it is now. Raises LauncherUnavailable.

        Also for a pod with the label of another platform: it may be one of ours, made before the
        settings were changed that the label is derived from, and it still runs.
        """
        try:
            found = await self._api.get(f"{self._path}/pods/{name}")
        except Refused as refused:
            raise LauncherUnavailable(f"{name} cannot be read: {refused}") from refused
        if found is not None and not self._is_ours(found):
            raise LauncherUnavailable(
                f"pod {name} has another platform's label {names.PLATFORM}: delete it, or set the "
                "object store and topic prefix as they were when it was created"
            )
        return found

    def _is_ours(self, pod: Object) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return bool(labels.get(names.PLATFORM) == self._rules.platform)

    async def _annotate(self, name: str, uid: str, notice: StopNotice) -> bool:
        """False where there is no such pod. Raises LauncherUnavailable."""
        patch = manifest.stop_patch(notice.model_dump_json(), uid)
        try:
            return await self._api.patch(f"{self._path}/pods/{name}", patch)
        except Refused as refused:
            raise LauncherUnavailable(f"{name}: no stop notice sent: {refused}") from refused

    async def _delete(self, name: str, uid: str, grace_seconds: int) -> bool:
        """False where there is no such pod. Raises LauncherUnavailable."""
        try:
            return await self._api.delete(f"{self._path}/pods/{name}", uid, grace_seconds)
        except Refused as refused:
            raise LauncherUnavailable(f"{name} cannot be deleted: {refused}") from refused

    async def _delete_soon(self, name: str, uid: str, grace_seconds: int) -> None:
        """What fails here is made good by `kill`, after the notice's deadline."""
        await asyncio.sleep(NOTICE_LEAD_SECONDS)
        try:
            await self._delete(name, uid, grace_seconds)
        except LauncherUnavailable as error:
            log.warning("SIGTERM not sent", pod=name, error=str(error))

    async def _delete_orphans(self) -> None:
        """Pods of no run: the answer to their creation was lost, and they were created late."""
        since: dict[str, float] = {}
        while True:
            await asyncio.sleep(ORPHAN_SECONDS / 10)
            now = time.monotonic()
            if now - self._looked_at > ORPHAN_SECONDS / 2:
                continue  # no round is made here at the moment
            self._observed_at = {
                pod: at for pod, at in self._observed_at.items() if at > now - ORPHAN_SECONDS
            }
            orphans = self._known.running() - self._observed_at.keys()
            since = {pod_id: since.get(pod_id, now) for pod_id in orphans}
            for pod_id in (pod_id for pod_id, at in since.items() if at < now - ORPHAN_SECONDS):
                known = self._known.get(pod_id)
                if known is None:
                    continue
                log.warning("pod of no run is deleted", pod_id=pod_id)
                with contextlib.suppress(LauncherUnavailable):
                    await self._delete(known.name, known.uid, KILL_GRACE_SECONDS)


def _discard(tasks: dict[str, asyncio.Task[None]], pod_id: str, done: asyncio.Task[None]) -> None:
    """Not the task that has taken its place."""
    if tasks.get(pod_id) is done:
        del tasks[pod_id]
