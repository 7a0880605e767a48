"""The variables of each service that the caller of the platform may set, as on a cluster."""

from pathlib import Path
from typing import get_args

from services.checkpoints.settings import CheckpointsSettings
from services.cost.settings import CostSettings
from services.gateway.settings import GatewaySettings
from services.hpo.settings import HpoSettings
from services.metrics.settings import MetricsSettings
from services.runtime.settings import PREFIX, Settings
from services.scheduler.settings import SchedulerSettings

CLASSES: dict[str, type[Settings]] = {
    "scheduler": SchedulerSettings,
    "checkpoints": CheckpointsSettings,
    "metrics": MetricsSettings,
    "cost": CostSettings,
    "hpo": HpoSettings,
    "gateway": GatewaySettings,
}
# By the platform, for each service or for all of them alike.
SET_HERE = Settings.model_fields.keys() - {"allowed_hosts", "shutdown_seconds"} | {
    *("nodes", "pods_directory", "template_socket"),
    *("api_token", "cookie_secret", "assets_directory", "data_directory"),
    *("metrics_url", "cost_url", "hpo_url", "scheduler_url"),
}
_FIELDS = {name: cls.model_fields.items() for name, cls in CLASSES.items()}

VARIABLES = {
    service: frozenset(
        f"{PREFIX}{name.upper()}{end}"
        for name, _ in fields
        if name not in SET_HERE
        for end in ("", "_FILE")
    )
    for service, fields in _FIELDS.items()
}
PATHS = frozenset(
    f"{PREFIX}{name.upper()}"
    for fields in _FIELDS.values()
    for name, field in fields
    if Path in (field.annotation, *get_args(field.annotation))
)
