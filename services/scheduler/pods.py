"""Observes pods through the launcher and carries out what the core decides.

`look` keeps the last observation of every pod and since when it has been the same; `act` launches,
sends stop notices and kills, and returns what was done, to be recorded. What fails is counted and
tried again in the next round. While the launcher is unavailable the last observations stay and no
time passes for pods that are waited for.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from drivetrain_schemas.access import pod_client
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import KafkaAccess, PodSpec, StopNotice
from drivetrain_schemas.runs import WaitCause
from services.runtime import logs
from services.runtime.clock import Clock
from services.runtime.run_tokens import RunTokens
from services.scheduler import instruments, traces
from services.scheduler.core.pods import EndReason, RunView, Sight
from services.scheduler.core.reconcile import Acts, Limits, acts
from services.scheduler.core.waits import Wait, is_news, wait_of
from services.scheduler.launchers.base import (
    LaunchBlocked,
    Launcher,
    LauncherUnavailable,
    LaunchRefused,
    Observation,
    PodRef,
)
from services.scheduler.launchers.calls import each, limited
from services.scheduler.projection import LiveRun, is_settled, is_to_start, view
from services.scheduler.projection import wait_of as wait_of_run
from services.scheduler.seen import Seen
from services.scheduler.settings import SchedulerSettings
from services.scheduler.store_pods import PodRow

log = logs.get()

# The specs of these jobs, by id.
ReadSpecs = Callable[[Sequence[str]], Awaitable[Mapping[str, JobSpec]]]

# A process that SIGKILL does not end is stuck in the kernel; the loop must not wait for it.
KILL_AGAIN_SECONDS = 10.0
# After a launch or a notice without an answer, or a launch that was refused for now.
UNANSWERED_AGAIN_SECONDS = 2.0
# Unless a pod was created since then. Longer than a job usually waits until it tries again.
BLOCKED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Acted:
    """Pod ids: those launched (or tried), and those confirmed to have no process left; `refused`
    are the reasons for those among them that were never created."""

    launched: tuple[str, ...] = ()
    notified: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    refused: Mapping[str, EndReason] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.launched or self.notified or self.gone)


class Pods:
    def __init__(self, launcher: Launcher, settings: SchedulerSettings, clock: Clock) -> None:
        self.launcher = launcher
        self._settings = settings
        self._clock = clock
        self._limits = limits_of(settings, launcher)
        self._seen = Seen()
        self._kill_again_at: dict[str, float] = {}
        self._alive_at: dict[str, float] = {}
        self._refused: dict[str, EndReason] = {}
        self._again_at: dict[str, float] = {}
        self._blocked_at = -BLOCKED_SECONDS
        self._told_at: dict[str, float] = {}
        self.observations: Mapping[str, Observation] = {}
        self._away: Wait | None = None

    @property
    def is_away(self) -> bool:
        return self._away is not None

    async def say_that_none_live(self) -> None:
        """The launcher looks for pods that belong to no run, so it is told of an idle platform."""
        with suppress(LauncherUnavailable):
            await limited(self.launcher.observe(()))

    async def look(self, live_runs: Sequence[LiveRun]) -> bool:
        """True when something looks different from the last time. False, and `is_away`, when the
        launcher is unavailable: nothing is known then, and nothing is to be done."""
        refs = [ref for live in live_runs for ref in live.refs()]
        now = self._clock.monotonic()
        try:
            observations = await limited(self.launcher.observe(refs)) if refs else {}
        except LauncherUnavailable as error:
            self._note_away(error)
            return False
        if self.is_away:
            self._away = None
            log.info("launcher is available again")
            self._seen.resume(now)
        self.observations = observations
        self._note_blocked()
        if self._told_at:
            live_ids = {live.run.run_id for live in live_runs}
            self._told_at = {run: at for run, at in self._told_at.items() if run in live_ids}
        self._alive_at = {
            pod_id: now if seen.is_running else self._alive_at[pod_id]
            for pod_id, seen in self.observations.items()
            if seen.is_running or pod_id in self._alive_at
        }
        return self._seen.note(self.observations, self._clock.monotonic())

    def seconds_since_alive(self, live: LiveRun | None = None) -> Mapping[str, float]:
        """Seconds since each pod (of this run) was seen alive, as far as this process knows."""
        now = self._clock.monotonic()
        pod_ids = self._alive_at if live is None else [pod.pod_id for pod in live.pods]
        return {pod: now - self._alive_at[pod] for pod in pod_ids if pod in self._alive_at}

    def view(self, live: LiveRun) -> RunView:
        return view(live, self.observations, self._seen, self._clock.monotonic())

    def is_settled(self, live: LiveRun) -> bool:
        """This run needs no action and has nothing to record until it looks different."""
        return is_settled(live, self.observations)

    def _note_blocked(self) -> None:
        seen = self.observations
        blocked = {
            pod_id: replace(seen[pod_id], wait=wait)
            for pod_id, wait in self._seen.blocked().items()
            if pod_id in seen and seen[pod_id].sight in (Sight.ABSENT, Sight.CREATED)
        }
        if blocked:
            self.observations = {**seen, **blocked}

    def has_new_wait(self, live: LiveRun) -> bool:
        """Something else than was announced keeps it from running."""
        if not is_to_start(live):
            return False
        told_at = self._told_at.get(live.run.run_id)
        seconds = float("inf") if told_at is None else self._clock.monotonic() - told_at
        return is_news(live.run.waiting, self._wait_of(live), seconds)

    def new_wait(self, live: LiveRun) -> Wait | None:
        """What is announced now."""
        self._told_at[live.run.run_id] = self._clock.monotonic()
        return self._wait_of(live)

    def _wait_of(self, live: LiveRun) -> Wait | None:
        return self._away if self.is_away else wait_of_run(live, self.observations)

    def _note_away(self, error: LauncherUnavailable) -> None:
        """Counted and logged once, however long it takes."""
        if not self.is_away:
            self._away = wait_of(WaitCause.NO_ANSWER, "", f"pods cannot be observed: {error}")
            instruments.LAUNCHER_AWAY.set(1)
            instruments.LAUNCHER_OUTAGES.inc()
            log.warning("launcher is unavailable, runs stay as they are", error=str(error))

    async def act(self, live_runs: Sequence[LiveRun], read_specs: ReadSpecs) -> Acted:
        self._refused = {}
        wants = [(live, acts(self.view(live), self._limits)) for live in live_runs]
        to_launch = [live.job.job_id for live, wanted in wants if wanted.launch]
        specs = await read_specs(to_launch) if to_launch else {}
        launches = {
            pod.pod_id: partial(self._launch, live, pod, specs[live.job.job_id])
            for live, wanted in wants
            for pod in live.pods
            if pod.pod_id in wanted.launch and not self._is_refused(pod.pod_id)
        }
        refs = {ref.pod_id: ref for live in live_runs for ref in live.refs()}
        notices = {
            pod_id: partial(self._notify, refs[pod_id], wanted)
            for _, wanted in wants
            for pod_id in wanted.notify
        }
        launched, unanswered = await self._each(launches)
        for pod_id, why in unanswered.items():
            self._block(pod_id, wait_of(WaitCause.NO_ANSWER, "", f"no pod can be created: {why}"))
        self._note_blocked()
        seconds = self._clock.monotonic() - self._blocked_at
        instruments.LAUNCHER_AWAY.set(seconds < BLOCKED_SECONDS)
        notified, _ = await self._each(notices)
        doomed = [refs[pod_id] for _, wanted in wants for pod_id in wanted.kill]
        doomed += [refs[pod_id] for pod_id in launches if pod_id in self._refused]
        for _, wanted in wants:
            self._refused |= wanted.give_up
        killed = await self._kill(doomed)
        refused = {pod: self._refused[pod] for pod in killed if pod in self._refused}
        return Acted(launched, notified, tuple(killed), refused)

    async def _each(
        self, calls: Mapping[str, Callable[[], Awaitable[bool]]]
    ) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The pods for which the call returned True, and those without an answer, which are put off
        so that the others get their turn, with what is known of why."""
        now = self._clock.monotonic()
        due = [pod_id for pod_id in calls if self._again_at.get(pod_id, 0.0) <= now]
        # Those that were begun, and why there was no answer.
        begun: dict[str, str] = {}

        async def call(pod_id: str) -> bool:
            begun[pod_id] = "it took too long"
            try:
                return await calls[pod_id]()
            except LauncherUnavailable as error:
                begun[pod_id] = str(error)
                raise

        done = await each([partial(call, pod_id) for pod_id in due])
        results = dict(zip(due, done, strict=True))
        unanswered = [pod_id for pod_id in due if pod_id in begun and results[pod_id] is None]
        if unanswered:
            first = unanswered[0]
            log.warning(
                "call of the launcher failed",
                num_pods=len(unanswered),
                pod_id=first,
                error=begun[first],
            )
        self._again_at = {pod_id: at for pod_id, at in self._again_at.items() if at > now}
        self._again_at |= dict.fromkeys(unanswered, now + UNANSWERED_AGAIN_SECONDS)
        done_ids = tuple(pod_id for pod_id, is_done in results.items() if is_done)
        return done_ids, {pod_id: begun[pod_id] for pod_id in unanswered}

    def _block(self, pod_id: str, wait: Wait) -> None:
        instruments.LAUNCH_FAILURES.inc()
        now = self._blocked_at = self._clock.monotonic()
        self._seen.block(pod_id, wait, now)
        self._again_at[pod_id] = now + UNANSWERED_AGAIN_SECONDS

    def _is_refused(self, pod_id: str) -> bool:
        """It was refused a moment ago, and what there may be of it is not confirmed gone."""
        return self._kill_again_at.get(pod_id, 0.0) > self._clock.monotonic()

    async def _launch(self, live: LiveRun, pod: PodRow, job: JobSpec) -> bool:
        try:
            await self.launcher.launch(pod_spec(live, pod, job, self.launcher, self._settings))
        except LaunchBlocked as blocked:
            if self._seen.blocked().get(pod.pod_id) != blocked.wait:
                log.warning("pod cannot be created", pod_id=pod.pod_id, why=blocked.wait.detail)
            self._block(pod.pod_id, blocked.wait)
            return False
        except LaunchRefused as refusal:
            instruments.LAUNCH_FAILURES.inc()
            log.warning("launch refused", pod_id=pod.pod_id, why=refusal.why.detail)
            self._refused[pod.pod_id] = refusal.why
            return False
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            # Recorded as launched nevertheless: a pod that never appears is lost, and retried.
            instruments.LAUNCH_FAILURES.inc()
            log.error("pod not launched", pod_id=pod.pod_id, error=str(error))
        else:
            self._blocked_at = -BLOCKED_SECONDS
        self._seen.block(pod.pod_id, None, self._clock.monotonic())
        self._seen.restart(pod.pod_id, self._clock.monotonic())
        return True

    async def _notify(self, ref: PodRef, wanted: Acts) -> bool:
        seconds = self._limits.notice(wanted.reason, wanted.saves_last)
        notice = StopNotice.model_validate(
            {
                "reason": wanted.reason,
                "deadline_seconds": seconds,
                "checkpoint": wanted.saves_last,
            }
        )
        try:
            await self.launcher.notify(ref, notice)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            log.error("stop notice not sent", pod_id=ref.pod_id, error=str(error))
            self._seen.set_notice(ref.pod_id, None, self._clock.monotonic())
            return False
        self._seen.set_notice(ref.pod_id, wanted.reason, self._clock.monotonic())
        log.info("stop notice sent", pod_id=ref.pod_id, reason=wanted.reason)
        return True

    async def _kill(self, wanted: Sequence[PodRef]) -> list[str]:
        now = self._clock.monotonic()
        doomed = [ref for ref in wanted if self._kill_again_at.get(ref.pod_id, 0.0) <= now]
        if not doomed:
            return []
        try:
            gone = await limited(self.launcher.kill(doomed))
            # A shim may have written its exit just before: it still records how the pod ended.
            ended = [ref for ref in doomed if ref.pod_id in gone]
            again = await limited(self.launcher.observe(ended)) if ended else {}
        except LauncherUnavailable as error:
            log.warning("pods not killed", num_pods=len(doomed), error=str(error))
            return []
        self.observations = {**self.observations, **again}
        # Those that were tried are delayed; the others keep their time.
        again_at = dict.fromkeys((ref.pod_id for ref in doomed), now + KILL_AGAIN_SECONDS)
        self._kill_again_at = {
            ref.pod_id: again_at.get(ref.pod_id, self._kill_again_at.get(ref.pod_id, 0.0))
            for ref in wanted
            if ref.pod_id not in gone
        }
        instruments.KILLS.inc(len(doomed))
        log.warning(
            "pods killed", pods=[ref.pod_id for ref in doomed], all_gone=len(gone) == len(doomed)
        )
        return sorted(gone)


def limits_of(settings: SchedulerSettings, launcher: Launcher) -> Limits:
    return Limits(
        start=settings.start_seconds or launcher.start_seconds,
        refused=settings.refused_seconds,
        cancel_notice=settings.cancel_notice_seconds,
        gang_notice=settings.gang_notice_seconds,
    )


def pod_spec(
    live: LiveRun, pod: PodRow, job: JobSpec, launcher: Launcher, settings: SchedulerSettings
) -> PodSpec:
    """Everything that the pod's shim receives."""
    run = live.run
    rendezvous = launcher.rendezvous(run.job_id, run.attempt)
    is_alone = len(live.pods) == 1
    return PodSpec(
        pod_id=pod.pod_id,
        tenant_id=live.job.tenant_id,
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        fence=run.fence,
        node_id=pod.node_id,
        pod_index=pod.index,
        num_pods=len(live.pods),
        first_rank=pod.first_rank,
        num_ranks=pod.num_ranks,
        world_size=sum(each.num_ranks for each in live.pods),
        device_type=run.device_type,
        devices=pod.devices,
        job=job,
        kafka=kafka_access_of_pods(settings, run.job_id),
        object_store_url=settings.object_store_url,
        object_store_endpoint_url=settings.object_store_endpoint_url,
        code_urls=settings.code_urls,
        max_log_kib_per_second=settings.max_log_kib_per_second_of_pod,
        object_store_id=settings.object_store_id,
        rendezvous_address=None if is_alone else rendezvous.address,
        rendezvous_file=rendezvous.file,
        master_port=run.master_port,
        run_token=RunTokens(settings.run_token_key).of(run.run_id, run.fence),
        trace=traces.of_pod(live.job, run),
    )


def kafka_access_of_pods(settings: SchedulerSettings, job_id: str) -> KafkaAccess:
    """With the certificates as they are now: a renewed one counts for the pods started after it.

    Raises OSError for a file that cannot be read.
    """
    login = settings.pods_login()
    pem = {name: login[name].read_text() for name in ("ca", "certificate", "key") if login[name]}
    return KafkaAccess(
        bootstrap_servers=login["servers"],
        topic_prefix=settings.topic_prefix,
        client_id=pod_client(job_id),
        username=login["username"],
        password=login["password"].get_secret_value() if login["password"] else None,
        security_protocol=login["protocol"],
        sasl_mechanism=login["mechanism"],
        **pem,
    )
