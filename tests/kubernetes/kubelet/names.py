"""Addresses of pods and nodes, and the names that pods can look up.

A real cluster answers `<hostname>.<subdomain>` by DNS from the endpoints of headless services, and
leads the address of any other service to one of its pods. Here each pod's /etc/hosts holds those
names with addresses of pods; endpoints in 127.0.0.0/8 are refused by the API server, so they are
computed from services and pods by the same rule.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Object = Mapping[str, Any]


def address_of(identity: str) -> str:
    """An address in 127.16.0.0 to 127.255.255.255, always the same for the same pod or node."""
    digest = hashlib.sha256(identity.encode()).digest()
    return f"127.{16 + digest[0] % 240}.{digest[1]}.{1 + digest[2] % 254}"


def hostname_of(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def names_in(namespace: str, pods: Iterable[Object], services: Iterable[Object]) -> list[str]:
    """Lines of a hosts file: what services of the namespace name."""
    lines = []
    ours = [pod for pod in pods if pod["metadata"]["namespace"] == namespace]
    for service in services:
        spec = service["spec"]
        if service["metadata"]["namespace"] != namespace:
            continue
        name = service["metadata"]["name"]
        for pod in ours:
            address = pod.get("status", {}).get("podIP")
            if not address or not _is_selected(pod, spec.get("selector") or {}):
                continue
            if not (is_ready(pod) or spec.get("publishNotReadyAddresses")):
                continue
            lines.append(f"{address} {' '.join(_spellings(name, namespace))}")
            if pod["spec"].get("hostname") and pod["spec"].get("subdomain") == name:
                full = f"{pod['spec']['hostname']}.{name}"
                lines.append(f"{address} {' '.join(_spellings(full, namespace))}")
    return sorted(lines)


def _is_selected(pod: Object, selector: Mapping[str, str]) -> bool:
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return False
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def _spellings(name: str, namespace: str) -> list[str]:
    short = [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]
    return [*short, f"{name}.{namespace}.svc.cluster.local"]


def write_hosts(file: Path, pod: Object, address: str, names: list[str]) -> None:
    """In place, because the file is mounted; a reader sees the old end for a moment at most."""
    lines = ["127.0.0.1 localhost", f"{address} {hostname_of(pod)}", *names]
    content = ("\n".join(lines) + "\n").encode()
    if file.exists() and file.read_bytes() == content:
        return
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
