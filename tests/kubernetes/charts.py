"""Renders the charts of `deploy/charts` with helm."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.package import ORDER, package

CHARTS = Path(__file__).parents[2] / "deploy" / "charts"
RELEASE = "drivetrain"
NAMESPACE = "platform"
KUBERNETES = "1.34.4"
SHARED: Mapping[str, Any] = {
    "kafka": {"bootstrapServers": "kafka:9093", "caSecret": {"name": "kafka-ca"}},
    "objectStore": {"url": "s3://bucket/prefix", "region": "eu-west-1"},
}
JOBS: Mapping[str, Any] = {"jobs": {"image": "drivetrain/training:1"}}
NEEDED: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(ORDER, SHARED),
    "scheduler": {**SHARED, **JOBS},
    "drivetrain": {"global": SHARED, "scheduler": JOBS},
}


class Refused(Exception):
    """What helm said."""


class Helm:
    """helm with a home of its own, and the packaged charts."""

    def __init__(self, tools: Path, home: Path) -> None:
        self.tools = tools
        self._home = home
        self._rendered: dict[tuple[str, str, str], str] = {}
        self.packages = dict(
            zip(ORDER, package(home / "packages", str(tools / "helm")), strict=True)
        )

    def run(self, *arguments: str | Path, kubeconfig: Path | None = None) -> str:
        """Its output. Raises Refused."""
        environment = os.environ | {
            "HELM_CACHE_HOME": str(self._home / "cache"),
            "HELM_CONFIG_HOME": str(self._home / "config"),
            "HELM_DATA_HOME": str(self._home / "data"),
            **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
        }
        done = subprocess.run(
            [self.tools / "helm", *arguments],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise Refused(done.stdout + done.stderr)
        return done.stdout

    def values_file(self, values: Mapping[str, Any]) -> Path:
        path = self._home / f"values-{len(list(self._home.glob('values-*')))}.yaml"
        path.write_text(json.dumps(values))  # JSON is YAML
        return path

    def render_text(
        self, chart: str, values: Mapping[str, Any] | None = None, kubernetes: str = KUBERNETES
    ) -> str:
        """With `values` over those that the chart needs. Rendered once."""
        key = chart, json.dumps(values or {}, sort_keys=True), kubernetes
        if key not in self._rendered:
            self._rendered[key] = self.run(
                *("template", RELEASE, self.packages[chart], "--namespace", NAMESPACE),
                *("--kube-version", kubernetes, "--values", self.values_file(NEEDED[chart])),
                *("--values", self.values_file(values or {})),
            )
        return self._rendered[key]

    def render(self, chart: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The objects."""
        return parsed(self.render_text(chart, values))


class _Loader(yaml.SafeLoader):
    """As Kubernetes reads YAML: `1e3` is a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("+-0123456789"),
)


def parsed(text: str) -> list[dict[str, Any]]:
    """The objects of rendered text."""
    return [each for each in yaml.load_all(text, _Loader) if each]


def pod_spec(workload: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] in kinds]


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}
