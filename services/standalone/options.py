"""Options of `python -m services.standalone`, and the caller's `DRIVETRAIN_*` variables.

In: arguments and environment. Out: `Options`, or an error that names the option and the fix.
An unknown variable with our prefix is refused: a misspelt one must not go unnoticed.
"""

import argparse
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.runtime.settings import OF_THE_CLIENT, PREFIX
from services.standalone.home import default_home
from services.standalone.jars import default_cache
from services.standalone.own_settings import PATHS, SET_HERE, VARIABLES
from services.standalone.parts import (
    KAFKA_SECURITY,
    LAUNCHER,
    OF_KUBERNETES,
    PASSED_ON,
    PODS_LOGIN,
    PODS_SECURITY,
    port_names,
)

OUTSIDE_PARTS = (
    "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS",
    "DRIVETRAIN_KAFKA_SASL_USERNAME",
    "DRIVETRAIN_KAFKA_SASL_PASSWORD",
    *KAFKA_SECURITY,
    *PODS_LOGIN,
    *PODS_SECURITY,
    "DRIVETRAIN_POSTGRES_DSN",
    "DRIVETRAIN_OBJECT_STORE_URL",
    LAUNCHER,
)
KNOWN = frozenset({*OUTSIDE_PARTS, *PASSED_ON}.union(*VARIABLES.values()))


@dataclass(frozen=True, slots=True)
class Options:
    command: str
    home: Path
    jar_cache: Path
    ports: Mapping[str, int] = field(default_factory=dict)
    num_nodes: int | None = None
    slots: int | None = None
    num_brokers: int | None = None
    """None: as many as the data directory holds, at first one."""
    only_infrastructure: bool = False
    output: str = "table"
    outside: Mapping[str, str] = field(default_factory=dict)


class BadOption(ValueError):
    """An invalid option or variable."""


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises `BadOption`; prints and exits for `--help` and for wrong syntax, as argparse does."""
    given = _parser().parse_args(list(arguments))
    outside = {name: environment[name] for name in KNOWN if environment.get(name)}
    for name in outside:
        # The services have another working directory.
        if name in PATHS or name.endswith("_FILE"):
            outside[name] = str(Path(outside[name]).expanduser().resolve())
    unknown = [
        name
        for name in environment
        if name.startswith(PREFIX) and name not in (*KNOWN, *OF_THE_CLIENT)
    ]
    if unknown:
        raise BadOption("\n".join(map(_reason, sorted(unknown))))
    if OUTSIDE_PARTS[0] not in outside:
        login = ("DRIVETRAIN_KAFKA_SASL_PASSWORD", *KAFKA_SECURITY, *PODS_LOGIN, *PODS_SECURITY)
        for name in login:
            if name in outside:
                raise BadOption(f"{name} is given without {OUTSIDE_PARTS[0]}")
    elif given.brokers is not None:
        raise BadOption(f"--brokers is for the embedded Kafka; {OUTSIDE_PARTS[0]} names another")
    _check_launcher(outside)
    ports = dict(_port(text) for text in given.port)
    if given.gateway_port is not None:
        ports["gateway.http"] = given.gateway_port
    return Options(
        command=given.command,
        home=given.home.expanduser().resolve(),
        jar_cache=given.jar_cache.expanduser().resolve(),
        ports=ports,
        num_nodes=given.nodes,
        slots=given.slots,
        num_brokers=given.brokers,
        only_infrastructure=given.only_infrastructure,
        output=given.output,
        outside=outside,
    )


def _reason(name: str) -> str:
    """Why this variable is refused."""
    if name.removeprefix(PREFIX).lower() in SET_HERE:
        return f"{name}: the platform on one machine sets it itself; leave it out"
    near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.85)
    fix = f"did you mean {near[0]}?" if near else "services/standalone/README.md says which are"
    return f"{name}: no such setting; {fix}"


def _check_launcher(outside: Mapping[str, str]) -> None:
    if LAUNCHER not in outside:
        for name in outside:
            if name.startswith(OF_KUBERNETES):
                raise BadOption(f"{name} is given without {LAUNCHER}=kubernetes")
        return
    if outside[LAUNCHER] != "kubernetes":
        raise BadOption(f"{LAUNCHER}={outside[LAUNCHER]}: write kubernetes, or leave it out")
    if not outside.get("DRIVETRAIN_OBJECT_STORE_URL", "").startswith("s3://"):
        raise BadOption(
            f"{LAUNCHER}=kubernetes needs DRIVETRAIN_OBJECT_STORE_URL=s3://...: the pods of a "
            "cluster cannot read a directory of this machine"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.standalone",
        description="Run the whole platform on this machine, on real Kafka and Postgres.",
        epilog="Outside parts replace the platform's own: " + ", ".join(OUTSIDE_PARTS),
    )
    add = parser.add_argument
    add("command", nargs="?", choices=("up", "status", "stop"), default="up")
    add("--home", type=Path, default=default_home(), help="data directory (%(default)s)")
    add("--nodes", type=_count, help="number of virtual nodes (default: 2, or 1 for a lone GPU)")
    add("--slots", type=_count, help="slots of each node (default: the machine's CPUs or GPUs)")
    add(
        "--brokers",
        type=int,
        choices=(1, 3),
        help="Kafka brokers of a new data directory: 3 hold every record three times (default: 1)",
    )
    add("--gateway-port", type=_port_number, help="port of the page and the API")
    add(
        "--port",
        action="append",
        default=[],
        metavar="NAME=PORT",
        help=f"fix any other port; names: {', '.join(port_names())}",
    )
    add(
        "--only-infrastructure",
        action="store_true",
        help="Kafka, Postgres and topics, without the services",
    )
    add("--jar-cache", type=Path, default=default_cache(), help="where fetched jars are kept")
    add("--output", choices=("table", "json"), default="table", help="form of `status`")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1024:
        raise argparse.ArgumentTypeError("must be from 1 to 1024")
    return number


def _port_number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be from 1 to 65535")
    return number


def _port(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in port_names() or not number.isdigit() or not 1 <= int(number) <= 65535:
        raise BadOption(f"--port {text}: write NAME=PORT with a NAME of {', '.join(port_names())}")
    return name, int(number)
