"""The parts of the platform, declared once: what runs, what each needs, and its environment.

`PARTS` is the only list to change when a service is added. Order of start follows from `needs`;
the stop goes layer by layer: services first, then pods, the template, Kafka and Postgres.
A part that is replaced by an outside one (`replaced_by`) is not started, and no part waits for it.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from pathlib import Path

import services
from drivetrain_schemas.access import ACCESS, POD
from drivetrain_schemas.topics import REPORTS
from services.standalone import jars, kafka, kafka_cluster, postgres
from services.standalone.child import ChildSpec, Launch, Probe
from services.standalone.core.restarts import RestartPolicy
from services.standalone.credentials import Credentials
from services.standalone.home import Home
from services.standalone.nodes import VirtualNode
from services.standalone.own_settings import VARIABLES
from services.standalone.probes import accepts_connections, answers_http

SOURCE_ROOT = Path(services.__file__).parent.parent
TEMPLATE_STOP_S = 3.0
SERVICE_STOP_S = 15.0
PASSED_ON = (
    "DRIVETRAIN_LOG_LEVEL",
    "DRIVETRAIN_TOPIC_PREFIX",
    "DRIVETRAIN_TOPIC_REPLICATION_FACTOR",
    "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL",
)

# With the value "kubernetes": pods run in a cluster instead of on this machine. KUBECONFIG says in
# which, and DRIVETRAIN_KUBERNETES_* are settings of the scheduler.
LAUNCHER = "DRIVETRAIN_LAUNCHER"
OF_KUBERNETES = "DRIVETRAIN_KUBERNETES_"

# Of an outside broker: the user of the pods, where its operator has made one.
PODS_LOGIN = ("DRIVETRAIN_PODS_KAFKA_USERNAME", "DRIVETRAIN_PODS_KAFKA_PASSWORD")
_SECURITY = ("SECURITY_PROTOCOL", "SASL_MECHANISM", "CA_PATH", "CERTIFICATE_PATH", "KEY_PATH")
# Of an outside broker: how services and pods connect to it.
KAFKA_SECURITY = tuple(f"DRIVETRAIN_KAFKA_{name}" for name in _SECURITY)
PODS_SECURITY = tuple(f"DRIVETRAIN_PODS_KAFKA_{name}" for name in ("BOOTSTRAP_SERVERS", *_SECURITY))


class Layer(IntEnum):
    """Layers are stopped from the highest to the lowest."""

    INFRASTRUCTURE = 0
    TEMPLATE = 1
    SERVICE = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before anything starts."""

    home: Home
    ports: Mapping[str, int]
    credentials: Credentials
    nodes: tuple[VirtualNode, ...]
    jar_cache: Path
    outside: Mapping[str, str] = field(default_factory=dict)
    """The caller's `DRIVETRAIN_*` variables that standalone reads."""
    has_services: bool = True
    object_store_id: str | None = None
    num_brokers: int = 1

    @property
    def brokers(self) -> kafka_cluster.Brokers:
        return kafka_cluster.brokers_in(
            self.home.kafka, self.num_brokers, self.ports, self.credentials
        )

    @property
    def server(self) -> postgres.Server:
        return postgres.Server(
            self.home.postgres, self.ports["postgres"], self.credentials.postgres_password
        )

    def kafka_connection(self, user: str | None = None) -> kafka.KafkaConnection:
        """This user's, or the administrator's; an outside broker has one user for all."""
        servers = self.outside.get("DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS")
        if servers is None:
            return self.brokers.connection_of(user) if user else self.brokers.connection
        return kafka.KafkaConnection(
            servers,
            self.outside.get("DRIVETRAIN_KAFKA_SASL_USERNAME", ""),
            self.outside.get("DRIVETRAIN_KAFKA_SASL_PASSWORD", ""),
        )

    def postgres_dsn(self, role: str) -> str:
        """This role's; an outside server has one for all."""
        return self.outside.get("DRIVETRAIN_POSTGRES_DSN") or self.server.dsn_of(
            role, self.credentials.postgres_roles[role]
        )

    @property
    def object_store_url(self) -> str:
        return self.outside.get("DRIVETRAIN_OBJECT_STORE_URL") or self.home.objects.as_uri()

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['gateway.http']}"

    @property
    def template_socket(self) -> Path:
        """In the data directory, or in the temporary one where the path would be too long."""
        path = self.home.root / "template.sock"
        if len(os.fsencode(path)) <= postgres.LONGEST_SOCKET_PATH:
            return path
        name = hashlib.sha256(os.fsencode(self.home.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"drivetrain-{os.geteuid()}-{name}" / "template.sock"


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    layer: Layer
    ports: tuple[str, ...]
    needs: tuple[str, ...]
    build: Callable[[Plan], ChildSpec]
    replaced_by: str = ""


def service_environment(plan: Plan, name: str) -> dict[str, str]:
    """What the caller has set of this service, and its connections, with its own user and role."""
    own = {key: plan.outside[key] for key in VARIABLES[name] & plan.outside.keys()}
    variables = (
        own
        | _kafka_environment(plan, name)
        | {
            "DRIVETRAIN_POSTGRES_DSN": plan.postgres_dsn(name),
            "DRIVETRAIN_OBJECT_STORE_URL": plan.object_store_url,
        }
    )
    if plan.object_store_id is not None:
        variables["DRIVETRAIN_OBJECT_STORE_ID"] = plan.object_store_id
    return variables


def _kafka_environment(plan: Plan, user: str | None) -> dict[str, str]:
    connection = plan.kafka_connection(user)
    variables = {"DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": connection.bootstrap_servers}
    if connection.username:
        variables["DRIVETRAIN_KAFKA_SASL_USERNAME"] = connection.username
        variables["DRIVETRAIN_KAFKA_SASL_PASSWORD"] = connection.password
    passed_on = (*PASSED_ON, *KAFKA_SECURITY)
    return variables | {name: plan.outside[name] for name in passed_on if name in plan.outside}


def base_environment() -> dict[str, str]:
    """The caller's environment without our variables: services refuse unknown ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    return kept | {"PYTHONUNBUFFERED": "1"}


def broker_part(number: int) -> Part:
    """The second and the third run only where three are wanted."""
    name = kafka_cluster.NAMES[number]

    def build(plan: Plan) -> ChildSpec:
        paths = tuple(plan.jar_cache / jar.filename for jar in jars.locked_jars("kafka"))
        return kafka.spec(plan.brokers.all[number], paths, plan.home.logs / f"{name}.log")

    ports = (name, f"{name}.controller")
    replaced_by = "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"
    return Part(name, Layer.INFRASTRUCTURE, ports, (), build, replaced_by)


def build_postgres(plan: Plan) -> ChildSpec:
    return postgres.spec(plan.server, plan.home.logs / "postgres.log")


def build_topics(plan: Plan) -> ChildSpec:
    """A one-shot: creates the topics that the schemas declare."""
    variables = _kafka_environment(plan, None)
    if plan.num_brokers > 1:
        variables.setdefault("DRIVETRAIN_TOPIC_REPLICATION_FACTOR", str(plan.num_brokers))
    return _python("topics", ("services.runtime.topics",), plan, variables, None)


def build_access(plan: Plan) -> ChildSpec:
    """A one-shot: gives users and roles their rights on the embedded parts."""
    embedded = [
        option
        for option, replaced_by in (
            ("--kafka", "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS"),
            ("--postgres", "DRIVETRAIN_POSTGRES_DSN"),
        )
        if replaced_by not in plan.outside
    ]
    command = ("services.standalone.access", "--home", str(plan.home.root), *embedded)
    passed_on = {name: plan.outside[name] for name in PASSED_ON if name in plan.outside}
    return _python("access", command, plan, passed_on, None)


def build_template(plan: Plan) -> ChildSpec:
    socket = plan.template_socket
    options = ("--socket", str(socket), "--pods", str(plan.home.pods))
    return ChildSpec(
        name="template",
        launch=Launch(
            (sys.executable, "-m", "drivetrain.template", *options),
            base_environment(),
            # Its working directory is on the import path of every rank, so it holds no modules.
            plan.home.pods,
            stop_timeout_s=TEMPLATE_STOP_S,
        ),
        log_path=plan.home.logs / "template.log",
        probe=lambda: accepts_connections(socket),
        prepare=lambda: _own_directory(socket.parent),
        caller="scheduler",
    )


def service(name: str, settings: Callable[[Plan], dict[str, str]] = lambda plan: {}) -> Part:
    """A service: `python -m services.<name>`, ready when its `/readyz` says so."""

    def build(plan: Plan) -> ChildSpec:
        ops_port = plan.ports[f"{name}.ops"]
        variables = service_environment(plan, name) | {
            "DRIVETRAIN_OPS_PORT": str(ops_port),
            "DRIVETRAIN_HTTP_PORT": str(plan.ports[f"{name}.http"]),
            "DRIVETRAIN_READ_TOKEN": plan.credentials.read_token,
        }
        if REPORTS in ACCESS[name].reads:
            variables["DRIVETRAIN_RUN_TOKEN_KEY"] = plan.credentials.run_token_key
        return _python(
            name,
            (f"services.{name}",),
            plan,
            variables | settings(plan),
            lambda: answers_http(ops_port, "/readyz"),
        )

    ports = (f"{name}.http", f"{name}.ops")
    return Part(name, Layer.SERVICE, ports, ("kafka", "postgres", "topics", "access"), build)


def scheduler_settings(plan: Plan) -> dict[str, str]:
    pods = {}
    if "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS" not in plan.outside:
        login = plan.brokers.connection_of(POD)
        pods = dict(zip(PODS_LOGIN, (login.username, login.password), strict=True))
    if LAUNCHER in plan.outside:
        return pods
    return pods | {
        "DRIVETRAIN_PODS_DIRECTORY": str(plan.home.pods),
        "DRIVETRAIN_TEMPLATE_SOCKET": str(plan.template_socket),
        "DRIVETRAIN_NODES": json.dumps([asdict(node) for node in plan.nodes]),
    }


def gateway_settings(plan: Plan) -> dict[str, str]:
    return {
        "DRIVETRAIN_METRICS_URL": f"http://127.0.0.1:{plan.ports['metrics.http']}",
        "DRIVETRAIN_COST_URL": f"http://127.0.0.1:{plan.ports['cost.http']}",
        "DRIVETRAIN_HPO_URL": f"http://127.0.0.1:{plan.ports['hpo.http']}",
        "DRIVETRAIN_SCHEDULER_URL": f"http://127.0.0.1:{plan.ports['scheduler.http']}",
        "DRIVETRAIN_API_TOKEN": plan.credentials.api_token,
        "DRIVETRAIN_COOKIE_SECRET": plan.credentials.cookie_secret,
        "DRIVETRAIN_ASSETS_DIRECTORY": str(plan.home.assets),
        "DRIVETRAIN_DATA_DIRECTORY": str(plan.home.root),
    }


PARTS = (
    *(broker_part(number) for number in range(kafka_cluster.CLUSTER_SIZE)),
    Part(
        "postgres",
        Layer.INFRASTRUCTURE,
        ("postgres",),
        (),
        build_postgres,
        "DRIVETRAIN_POSTGRES_DSN",
    ),
    Part("topics", Layer.INFRASTRUCTURE, (), kafka_cluster.NAMES, build_topics),
    Part("access", Layer.INFRASTRUCTURE, (), (*kafka_cluster.NAMES, "postgres"), build_access),
    Part("template", Layer.TEMPLATE, (), (), build_template, LAUNCHER),
    service("scheduler", scheduler_settings),
    service("checkpoints"),
    service("metrics"),
    service("cost"),
    service("hpo"),
    service("gateway", gateway_settings),
)

PREFERRED_PORTS = {"gateway.http": 8480}


def parts_of(num_brokers: int) -> tuple[Part, ...]:
    """With three brokers no service waits for the first one: two are enough to go on."""
    if num_brokers == 1:
        return tuple(part for part in PARTS if part.name not in kafka_cluster.NAMES[1:])
    return tuple(
        replace(part, needs=tuple(it for it in part.needs if it != "kafka"))
        if part.layer is Layer.SERVICE
        else part
        for part in PARTS
    )


def port_names(num_brokers: int = kafka_cluster.CLUSTER_SIZE) -> tuple[str, ...]:
    return tuple(name for part in parts_of(num_brokers) for name in part.ports)


def _python(
    name: str,
    command: Sequence[str],
    plan: Plan,
    variables: Mapping[str, str],
    probe: Probe | None,
) -> ChildSpec:
    launch = Launch(
        (sys.executable, "-m", *command),
        {**base_environment(), **variables},
        # `services` is not an installed package: it is imported from the working directory. Not by
        # PYTHONPATH, which pods would inherit.
        SOURCE_ROOT,
        stop_timeout_s=SERVICE_STOP_S,
    )
    ports = {each: plan.ports[each] for each in sorted(plan.ports) if each.startswith(f"{name}.")}
    policy = RestartPolicy(knows_exit_codes=True)
    return ChildSpec(name, launch, plan.home.logs / f"{name}.log", probe, ports, policy=policy)


def _own_directory(path: Path) -> None:
    """Make the socket's directory; refuse one that another user has made."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{path} belongs to another user; remove it and start again.")
