"""Packages the charts, each with what it depends on: `python -m deploy.package DIRECTORY`.

Needs `helm` on the path, or as $HELM. It uses no network: the charts depend only on each other.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from drivetrain_schemas.topics import SERVICES

DEPLOY = Path(__file__).resolve().parent
CHARTS = DEPLOY / "charts"
ORDER = ("setup", *SERVICES, "drivetrain")


def package(directory: Path, helm: str, version: str | None = None) -> list[Path]:
    """The packages, those of the services first. `version` replaces that in each Chart.yaml."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        charts = Path(work) / "charts"
        shutil.copytree(CHARTS, charts, ignore=shutil.ignore_patterns("Chart.lock", "*.tgz"))
        if version is not None:
            for path in charts.glob("*/Chart.yaml"):
                path.write_text(path.read_text().replace("version: 0.2.0", f"version: {version}"))
        monitoring = charts / "drivetrain" / "monitoring"
        monitoring.mkdir()
        for path in (*DEPLOY.glob("dashboards/json/*.json"), *DEPLOY.glob("alerts/*.yaml")):
            shutil.copy(path, monitoring)
        packages = []
        for name in ORDER:
            chart = charts / name
            _helm(helm, Path(work), "dependency", "update", str(chart), "--skip-refresh")
            _helm(helm, Path(work), "package", str(chart), "--destination", str(directory))
            packages += sorted(directory.glob(f"{name}-[0-9]*.tgz"))[-1:]
    return packages


def _helm(helm: str, home: Path, *arguments: str) -> None:
    """Run helm with a home of its own, so that no repository of the user is asked."""
    variables = {"HELM_CACHE_HOME": "cache", "HELM_CONFIG_HOME": "config", "HELM_DATA_HOME": "data"}
    environment = os.environ | {key: str(home / name) for key, name in variables.items()}
    subprocess.run([helm, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m deploy.package DIRECTORY")
    for each in package(Path(sys.argv[1]), os.environ.get("HELM", "helm")):
        print(each)
