"""The alerts in the real promtool: valid, and each seen to fire and not to fire."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.prometheus_server import find

ALERTS = Path(__file__).resolve().parents[3] / "deploy" / "alerts"
RULES = sorted(ALERTS.glob("*.yaml"))
TESTS = sorted(ALERTS.glob("tests/*.yaml"))


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [find("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    promtool("check", "rules", *map(str, RULES))


@pytest.mark.heavy
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_each_alert_fires_and_does_not_fire(path: Path) -> None:
    promtool("test", "rules", str(path))


def test_no_alert_is_without_both_tests() -> None:
    """Of each alert, and of each severity that it has."""
    alerts = {
        (rule["alert"], rule["labels"]["severity"])
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    severities: dict[str, set[str]] = {}
    for name, severity in alerts:
        severities.setdefault(name, set()).add(severity)
    fires, is_quiet = set(), set()
    for path in TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for each in case["promql_expr_test"]:
                (name,) = [one for one in severities if f'"{one}"' in each["expr"]]
                if not each["exp_samples"]:
                    is_quiet.add(name)
                for sample in each["exp_samples"]:
                    told = [it for it in severities[name] if f'severity="{it}"' in sample["labels"]]
                    fires |= {(name, it) for it in told or severities[name]}
    assert alerts - fires == set(), "no test sees these fire"
    assert severities.keys() - is_quiet == set(), "no test sees these not fire"
