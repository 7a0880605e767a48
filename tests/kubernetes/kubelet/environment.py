"""What a container gets from its pod's fields: environment variables, command, downward fields."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Object = Mapping[str, Any]
# (kind of "secrets" or "configmaps", name) -> its data as text, None where there is none
FindData = Callable[[str, str], Awaitable[dict[str, str] | None]]


class ConfigError(Exception):
    """The pod names something that is not there (yet); it is tried again.

    `reason`: what the container's status says, if not CreateContainerConfigError.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


async def environment_of(
    container: Object, pod: Object, base: Mapping[str, str], find: FindData
) -> dict[str, str]:
    """Raises ConfigError."""
    variables = dict(base)
    for source in container.get("envFrom", ()):
        for kind, reference in (("secrets", "secretRef"), ("configmaps", "configMapRef")):
            if reference in source:
                data = await _data(kind, source[reference], find)
                prefix = source.get("prefix", "")
                variables |= {f"{prefix}{key}": value for key, value in data.items()}
    for item in container.get("env", ()):
        if "valueFrom" in item:
            value = await _value_from(item["valueFrom"], container, pod, find)
            if value is None:
                continue
        else:
            value = expanded(item.get("value", ""), variables)
        variables[item["name"]] = value
    return variables


def command_of(container: Object, variables: Mapping[str, str]) -> list[str]:
    words = [*container.get("command", ()), *container.get("args", ())]
    return [expanded(word, variables) for word in words]


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, `$$(NAME)` stays as `$(NAME)`."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([-._a-zA-Z0-9]+)\)", replacement, text)


def field_of(path: str, pod: Object) -> str:
    """A downward field, as `fieldRef.fieldPath` spells it."""
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if keyed:
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        values = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{key}={quoted(value)}" for key, value in sorted(values.items()))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
    }
    if path not in values:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return str(values[path])


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def resource_of(reference: Object, container: Object) -> str:
    kind, _, name = str(reference["resource"]).partition(".")
    amounts = container.get("resources", {}).get(kind, {})
    return str(amounts.get(name, "0"))


async def _value_from(source: Object, container: Object, pod: Object, find: FindData) -> str | None:
    if "fieldRef" in source:
        return field_of(source["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in source:
        return resource_of(source["resourceFieldRef"], container)
    for kind, name in (("secrets", "secretKeyRef"), ("configmaps", "configMapKeyRef")):
        if name in source:
            reference = source[name]
            data = await _data(kind, reference, find)
            if reference["key"] in data:
                return data[reference["key"]]
            if reference.get("optional"):
                return None
            singular = kind.removesuffix("s")
            raise ConfigError(
                f"couldn't find key {reference['key']} in {singular} {reference['name']}"
            )
    raise ConfigError(f"unsupported valueFrom: {sorted(source)}")


async def _data(kind: str, reference: Object, find: FindData) -> dict[str, str]:
    data = await find(kind, reference["name"])
    if data is not None:
        return data
    if reference.get("optional"):
        return {}
    raise ConfigError(f'{kind.removesuffix("s")} "{reference["name"]}" not found')
