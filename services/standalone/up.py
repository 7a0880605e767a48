"""`up`: from an empty or an old data directory to a running platform, and back down.

Order: lock the directory, end what a killed platform left, credentials, ports, jars,
`connection.json`, then the supervisor; when all is ready, show the page's address. Stops on Ctrl-C
or SIGTERM (a second one kills), or when a part does not become ready. Out: the exit code, which is
0 only where everything that the caller requested was done.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from services.runtime import cgroups
from services.standalone import jars
from services.standalone.child import ChildGaveUp, Launch
from services.standalone.connection import connection_text, keep_connection, login_link
from services.standalone.credentials import load_or_create
from services.standalone.files import write_private
from services.standalone.home import Home, HomeHeld, locked
from services.standalone.kafka_cluster import num_brokers
from services.standalone.nodes import find_devices, virtual_nodes
from services.standalone.options import Options
from services.standalone.parts import (
    LAUNCHER,
    PREFERRED_PORTS,
    Layer,
    Part,
    Plan,
    parts_of,
    port_names,
)
from services.standalone.pods import kill_pod, live_pods, record_stop, stop_pods
from services.standalone.ports import PortTaken, choose_ports
from services.standalone.progress import Reporter
from services.standalone.roles import READER
from services.standalone.store import store_id
from services.standalone.supervisor import Member, Supervisor, end_leftovers

EXIT_FAILED = 1
EXIT_HELD = 3
EXIT_PORT_TAKEN = 5
EXIT_INTERRUPTED = 130

OnUp = Callable[[Plan, Reporter], Awaitable[int | None]]
"""Called once everything is ready; a number stops the platform and becomes the exit code."""


def up(options: Options, on_up: OnUp | None = None) -> int:
    """Run the platform until it is stopped, or until `on_up` has returned its number. 130 if it is
    stopped earlier.
    """
    reporter = Reporter()
    # The Kafka client logs every refused connection while the broker starts.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    home = Home(options.home)
    try:
        home.create()
        with locked(home):
            return asyncio.run(_up(options, home, reporter, on_up))
    except HomeHeld as error:
        reporter.failed(str(error))
        return EXIT_HELD
    except PortTaken as error:
        reporter.failed(str(error))
        return EXIT_PORT_TAKEN
    except (OSError, RuntimeError) as error:
        reporter.failed(str(error))
        return EXIT_FAILED


async def _up(options: Options, home: Home, reporter: Reporter, on_up: OnUp | None) -> int:
    stopped = 0 if on_up is None else EXIT_INTERRUPTED
    asked_to_stop = asyncio.Event()
    interrupts = _Interrupts(asked_to_stop)
    reporter.headline(f"Drivetrain, all on this machine, in {home.root}")
    ended = await end_leftovers(home.state)
    if ended:
        reporter.line(f"  ended what a killed platform left running: {', '.join(ended)}")
    plan = await asyncio.to_thread(make_plan, options, home)
    parts = wanted_parts(options, plan.num_brokers)
    await asyncio.to_thread(_fetch_jars, plan, parts, reporter)
    if asked_to_stop.is_set():
        return stopped
    connection = connection_text(plan)
    write_private(home.connection, connection)
    members = [Member(part.build(plan), part.layer, part.needs) for part in parts]
    scheduler = next((it.spec.launch for it in members if it.spec.name == "scheduler"), None)
    supervisor = Supervisor(
        members,
        home.state,
        reporter.changed,
        partial(_stop_pods, home, scheduler, reporter),
        outside_parts(options),
        reporter.warn,
        partial(keep_connection, home.connection, connection),
    )
    interrupts.on_second(partial(_kill_all, supervisor, home))
    try:
        with reporter.starting():
            starting = asyncio.ensure_future(supervisor.start())
            await _first_of(starting, asked_to_stop)
        if asked_to_stop.is_set():
            return stopped
        work = (on_up or _stay_up)(plan, reporter)
        code = await _while_up(supervisor, asked_to_stop, work, stopped)
    except ChildGaveUp as error:
        reporter.gave_up(error)
        return EXIT_FAILED
    finally:
        with reporter.stopping("stopping (Ctrl-C again kills)"):
            await supervisor.stop()
    return code


async def _while_up(
    supervisor: Supervisor,
    asked_to_stop: asyncio.Event,
    work: Awaitable[int | None],
    stopped: int,
) -> int:
    """Keep the platform up during the caller's work, until one of them ends.

    `stopped` is the exit code if the work has not ended.
    """
    working: asyncio.Future[int | None] = asyncio.ensure_future(work)
    keeping: asyncio.Future[None] = asyncio.ensure_future(supervisor.run_until(asked_to_stop))
    try:
        await _first_done(working, keeping)
        if working.done() and (code := working.result()) is not None:
            return code
        await keeping
        return 0 if working.done() else stopped
    finally:
        working.cancel()
        asked_to_stop.set()
        await asyncio.gather(working, keeping, return_exceptions=True)


async def _first_of(starting: "asyncio.Future[None]", asked_to_stop: asyncio.Event) -> None:
    asked = asyncio.ensure_future(asked_to_stop.wait())
    try:
        await _first_done(starting, asked)
        if starting.done():
            starting.result()
    finally:
        asked.cancel()
        starting.cancel()
        await asyncio.gather(asked, starting, return_exceptions=True)


async def _first_done(*futures: "asyncio.Future[Any]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def make_plan(options: Options, home: Home) -> Plan:
    """Everything that is decided before the first part starts."""
    is_outside = "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS" in options.outside
    number = 1 if is_outside else num_brokers(home.kafka, options.num_brokers)
    credentials = load_or_create(home.credentials)
    ports = choose_ports(home.ports, port_names(number), options.ports, PREFERRED_PORTS)
    devices = find_devices()
    nodes = virtual_nodes(devices, options.num_nodes, options.slots)
    plan = Plan(
        home,
        ports,
        credentials,
        nodes,
        options.jar_cache,
        options.outside,
        has_services=not options.only_infrastructure,
        num_brokers=number,
    )
    endpoint_url = options.outside.get("DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL")
    return replace(plan, object_store_id=store_id(home, plan.object_store_url, endpoint_url))


def wanted_parts(options: Options, num_brokers: int = 1) -> tuple[Part, ...]:
    """The parts that run here: those not replaced, and only the infrastructure if so requested."""
    return tuple(
        part
        for part in parts_of(num_brokers)
        if part.replaced_by not in options.outside
        and (part.layer is Layer.INFRASTRUCTURE or not options.only_infrastructure)
    )


def outside_parts(options: Options) -> dict[str, str]:
    """The variable that replaces each part which runs elsewhere."""
    parts = parts_of(1)
    return {part.name: part.replaced_by for part in parts if part.replaced_by in options.outside}


async def show_address(plan: Plan, reporter: Reporter) -> None:
    """Print the addresses of the page and of everything else."""
    if plan.has_services:
        reporter.headline(f"The platform is up. Open {await _link(plan)}")
        reporter.line("  (the link opens the pages once and leaves a cookie in that browser)")
        slots = ", ".join(
            f"{node.node_id} {node.slots} x {node.device_type}" for node in plan.nodes
        )
        if LAUNCHER in plan.outside:
            slots = "those of the Kubernetes cluster"
        elif why := cgroups.why_none():
            reporter.line(f"  pods        without a limit of memory and processes: {why}")
        reporter.line(f"  nodes       {slots}")
    else:
        connection = plan.kafka_connection()
        reporter.headline("Kafka and Postgres are up.")
        reporter.line(f"  kafka       {connection.bootstrap_servers} (SASL/PLAIN)")
        reporter.line(f"  postgres    {plan.postgres_dsn(READER).rpartition('@')[2]}")
    reporter.line(f"  credentials {plan.home.connection}")
    reporter.line("  stop        Ctrl-C")


async def _stay_up(plan: Plan, reporter: Reporter) -> int | None:
    await show_address(plan, reporter)
    return None


async def _link(plan: Plan) -> str:
    try:
        return await asyncio.to_thread(login_link, plan)
    except (OSError, ValueError, KeyError) as error:
        # The platform works without it; the token in connection.json authenticates to the API.
        return f"{plan.gateway_url} (no login link: {error})"


def _fetch_jars(plan: Plan, parts: tuple[Part, ...], reporter: Reporter) -> None:
    names = {part.name for part in parts}
    wanted = [
        *(jars.locked_jars("kafka") if "kafka" in names else ()),
        *(jars.locked_jars("web") if "gateway" in names else ()),
    ]
    missing = jars.missing_jars(wanted, plan.jar_cache)
    if missing:
        title = f"fetching {len(missing)} Java archives"
        with reporter.downloads(title, missing) as on_fetched:
            jars.fetch_jars(missing, plan.jar_cache, on_fetched)
    if "gateway" in names:
        jars.unpack_web_assets(plan.jar_cache, plan.home.assets)


async def _stop_pods(home: Home, scheduler: Launch | None, reporter: Reporter) -> None:
    num_pods = len(live_pods(home.pods))
    if num_pods:
        reporter.line(f"  stopping {num_pods} running pods; each writes a checkpoint first")
        if scheduler is not None and not await record_stop(scheduler):
            reporter.line(
                "  the stop is not recorded, so the jobs' next runs wait for their back-off"
            )
        await stop_pods(home.pods)


def _kill_all(supervisor: Supervisor, home: Home) -> None:
    for pod in live_pods(home.pods):
        kill_pod(pod)
    supervisor.kill()


class _Interrupts:
    """The first Ctrl-C or SIGTERM requests an orderly stop, the second one kills."""

    def __init__(self, asked_to_stop: asyncio.Event) -> None:
        self._asked_to_stop = asked_to_stop
        self._on_second: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._received)

    def on_second(self, action: Callable[[], None]) -> None:
        self._on_second = action

    def _received(self) -> None:
        if self._asked_to_stop.is_set():
            if self._on_second is None:
                # Nothing runs yet, and a download cannot be interrupted otherwise.
                os._exit(EXIT_INTERRUPTED)
            self._on_second()
        self._asked_to_stop.set()
