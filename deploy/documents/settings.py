"""The own settings of each service: what the chart passes on as DRIVETRAIN_<NAME>."""

import json
from typing import Any

from services.runtime.settings import Settings
from services.standalone.own_settings import CLASSES

# Those that other values of the charts give, or that have no meaning in a cluster.
_OF_ALL_SERVICES = frozenset(Settings.model_fields) - {"log_level", "shutdown_seconds"}
_OTHERS = frozenset(
    {
        "launcher",
        "nodes",
        "pods_directory",
        "template_socket",
        "kept_pod_directories",
        "kept_pod_directories_bytes",
        "kubernetes_namespace",
        "kubernetes_image",
        "kubernetes_image_pull_secrets",
        "kubernetes_service_account",
        "kubernetes_environment_secret",
        "price_book",
        "api_token",
        "cookie_secret",
        "metrics_url",
        "cost_url",
        "hpo_url",
        "scheduler_url",
        "assets_directory",
        "data_directory",
    }
)


def own_settings(service: str) -> list[str]:
    return [
        name
        for name in CLASSES[service].model_fields
        if name not in _OF_ALL_SERVICES | _OTHERS and not name.startswith("pods_kafka_")
    ]


def properties(service: str) -> dict[str, Any]:
    """JSON Schema of each own setting; mappings in it are closed."""
    schema = CLASSES[service].model_json_schema()
    found = {name: schema["properties"][name] for name in own_settings(service)}
    return {name: _inlined(each, schema.get("$defs", {})) for name, each in found.items()}


def rows(service: str) -> list[tuple[str, str, str]]:
    """(name, default, description) of each own setting."""
    fields = CLASSES[service].model_json_schema()["properties"]
    return [
        (
            f"settings.{name}",
            f"`{json.dumps(fields[name].get('default'))}`",
            fields[name].get("description", ""),
        )
        for name in own_settings(service)
    ]


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Without references, titles and defaults."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    return {
        key: {name: _inlined(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _inlined(value, definitions)
        for key, value in schema.items()
        if key not in ("title", "default", "format")
    }
