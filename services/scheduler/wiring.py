"""Builds the scheduler: the only module that constructs its adapters."""

from collections.abc import Sequence

from drivetrain_schemas.kafka_security import OF_PODS
from drivetrain_schemas.topics import REPORTS
from services.runtime.clock import SystemClock
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Service
from services.runtime.tls import TlsFiles, TlsNames, check_files
from services.scheduler import early_commands, retention
from services.scheduler.api import read_api
from services.scheduler.fleet import Fleet
from services.scheduler.handlers import Commands
from services.scheduler.kept_directories import KeptDirectories
from services.scheduler.launchers.base import Launcher
from services.scheduler.launchers.local import SHIM, LocalLauncher
from services.scheduler.launchers.nodes import NodesOfSettings, NodeSource
from services.scheduler.leases import Leases
from services.scheduler.loop import Loop
from services.scheduler.pods import Pods
from services.scheduler.settings import SchedulerSettings
from services.scheduler.sightings import Sightings


def build(settings: SchedulerSettings, shim: Sequence[str] = SHIM) -> Service:
    if settings.launcher == "kubernetes":
        # Only here, because the client library takes half a second to import.
        from services.scheduler.launchers.kubernetes import wiring as kubernetes

        return assemble(settings, *kubernetes.build(settings))
    launcher = LocalLauncher(settings.pods_directory, settings.template_socket, shim)
    return assemble(settings, launcher, NodesOfSettings(settings))


def assemble(settings: SchedulerSettings, launcher: Launcher, source: NodeSource) -> Service:
    """The service on this launcher and its nodes. Raises ConfigurationError."""
    _check_files_of_pods(settings)
    clock = SystemClock()
    tokens = RunTokens(settings.run_token_key)
    leases = Leases(clock, tokens, lease=settings.lease_seconds, interval=settings.beacon_seconds)
    pods = Pods(launcher, settings, clock)
    fleet = Fleet(source, settings.resync_seconds)
    loop = Loop(settings, pods, leases, fleet)
    commands = Commands(loop.wake, loop.registered, can_run_images=launcher.can_run_images)
    kept = KeptDirectories(
        launcher,
        max_jobs=settings.kept_pod_directories,
        max_bytes=settings.kept_pod_directories_bytes,
        on=settings.pods_directory,
    )
    return Service(
        name="scheduler",
        settings=settings,
        package="services.scheduler",
        handlers=commands.handlers,
        handle_batch=commands.on_batch,
        refusals=commands.refusals,
        streams={REPORTS: leases.on_reports},
        http=lambda platform: read_api(loop),
        tasks=(
            loop.run,
            lambda platform: launcher.watch(loop.look),
            lambda platform: fleet.watch(),
            lambda platform: fleet.follow(platform, loop.wake),
            leases.send_beacons,
            Sightings(pods).run,
            kept.run,
            retention.run,
            early_commands.expire,
        ),
    )


def _check_files_of_pods(settings: SchedulerSettings) -> None:
    login = settings.pods_login()
    if login["protocol"].endswith("SSL"):
        files = TlsFiles(login["ca"], login["certificate"], login["key"])
        check_files(files, TlsNames(OF_PODS.ca, OF_PODS.certificate, OF_PODS.key))
