"""Dashboards and alerts on a real Prometheus that reads a platform with a job, a study and a fault.

Every query must return data here, or stand in a list with the reason why it cannot.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from services.standalone.ports import free_port
from tests.prometheus_server import find
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted(ROOT.glob("deploy/dashboards/json/*.json"))
RULES = sorted(ROOT.glob("deploy/alerts/*.yaml"))
SERVICES = ("scheduler", "checkpoints", "metrics", "cost", "hpo", "gateway")
STUDY = {
    "name": "search",
    "sampler": "random",
    "seed": 1,
    "max_trials": 2,
    "space": {"x": {"type": "uniform", "low": 0, "high": 1}},
    "job": {
        "name": "trial",
        "command": "drivetrain report loss=0.5 --step 1",
        "metric": {"name": "loss", "goal": "minimize"},
    },
}
# Metrics that have no value, or none but NaN, on a platform where nothing of this kind happens.
WITHOUT_DATA = {
    "drivetrain_checkpoints_intent_failures_total": "the object store does not fail",
    "drivetrain_checkpoints_rejected_total": "no checkpoint is invalid",
    "drivetrain_cost_budgets_reached_total": "there is no budget",
    "drivetrain_cost_unpriced_charges_total": "every device has a price",
    "drivetrain_cost_unpriced_devices": "every device has a price",
    "drivetrain_events_failed_total": "no handler fails",
    "drivetrain_events_parked_dropped_total": "no record is parked, and so none dropped",
    "drivetrain_events_parked_total": "no record is parked",
    "drivetrain_forged_reports_total": "no pod forges a report",
    "drivetrain_gateway_parts_unavailable_total": "every service answers",
    "drivetrain_hpo_rungs_measured_total": "the study has no pruner",
    "drivetrain_hpo_study_commands_total": "nobody pauses or changes the study",
    "drivetrain_hpo_trials_stopped_total": "the study has no pruner",
    "drivetrain_metrics_alerts_total": "no run needs attention",
    "drivetrain_metrics_deliveries_total": "there is no webhook",
    "drivetrain_metrics_lineage_age_seconds": "no service takes lineage",
    "drivetrain_metrics_log_lines_deleted_total": "lines are not old enough",
    "drivetrain_metrics_silence_requests_total": "nobody silences an alert",
    "drivetrain_outbox_refused_total": "Kafka accepts every event",
    "drivetrain_scheduler_kubernetes_calls_total": "pods run on this machine",
    "drivetrain_scheduler_waiting_runs": "every pod starts at once",
    "drivetrain_sequence_gaps_total": "no event is missing",
}


class Prometheus:
    """The server of the distribution, with our rules, on loopback."""

    def __init__(self, directory: Path, platform: StandalonePlatform) -> None:
        ports = json.loads((platform.home / "ports.json").read_text())
        self._port = free_port()
        self._log = directory / "log"
        targets = [
            {"labels": {"service": name}, "targets": [f"127.0.0.1:{ports[f'{name}.ops']}"]}
            for name in SERVICES
        ]
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": [{"job_name": "drivetrain", "static_configs": targets}],
        }
        path = directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(configuration))
        self._command = [
            find("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    def start(self) -> None:
        self._started_at = time.time()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._reads_all, "Prometheus reads all services")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)

    def get(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(
            f"http://127.0.0.1:{self._port}/api/v1/{path}", params=parameters, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def values(self, query: str) -> list[str]:
        """What the query returned since the server was started, as a chart would; without NaN."""
        now = time.time()
        window = {"start": f"{self._started_at:.0f}", "end": f"{now:.0f}", "step": "1"}
        found = self.get("query_range", query=query, **window)["result"]
        return [value for series in found for _, value in series["values"] if value != "NaN"]

    def _reads_all(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            url = f"http://127.0.0.1:{self._port}/-/ready"
            if not httpx.get(url, trust_env=False).is_success:
                return False
            return self.values('count(up{job="drivetrain"} == 1)')[-1:] == [str(len(SERVICES))]
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def prometheus(
    platform: StandalonePlatform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """It has read a platform on which a rank was killed and a study was completed."""
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), platform)
    try:
        server.start()
        _happen(platform)
        wait_until(
            lambda: (
                server.values('drivetrain_cost_charged_usd_total{service="cost"} > 0')
                and server.values("drivetrain_hpo_studies_completed_total > 0")
            ),
            "the last facts are read",
        )
        yield server
    finally:
        server.stop()


def _happen(platform: StandalonePlatform) -> None:
    job = TrainingJob.submit(platform, "watched")
    job.wait_for_strike()
    # It wants more devices than are free, so it waits.
    waits = TrainingJob.submit(platform, "waits", resources={"devices": 4}, max_steps=1)
    os.kill(job.ranks(1)[0], signal.SIGKILL)
    with platform.client() as client:
        answer = client.post("/v1/studies", json={"request_id": "watched", "spec": STUDY})
        assert answer.status_code in (200, 201, 202), answer.text
    study = answer.json()["study_id"]
    assert job.wait_final()["state"] == "succeeded"
    waits.wait_final()
    wait_until(
        lambda: platform.get(f"/v1/studies/{study}")["state"] == "completed",
        "the study is completed", seconds=120,
    )  # fmt: skip


def _without_variables(query: str) -> str:
    query = query.replace("$__rate_interval", "5m")
    return re.sub(r"\$\w+", ".*", query)


def _has_reason(query: str) -> bool:
    return any(name in query for name in WITHOUT_DATA)


def test_every_panel_has_data(prometheus: Prometheus) -> None:
    missing = []
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                query = _without_variables(target["expr"])
                if not prometheus.values(query) and not _has_reason(query):
                    missing.append(f"{path.stem} / {panel['title']}: {query}")
    assert not missing, "no data, and no reason in WITHOUT_DATA:\n" + "\n".join(missing)


def test_every_rule_is_evaluated_and_what_it_asks_for_is_there(prometheus: Prometheus) -> None:
    missing = []
    for group in prometheus.get("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule
            for selector in re.findall(
                r"\b(?:drivetrain|process)_\w+(?:\{[^}]*\})?", rule["query"]
            ):
                # What a rule looks for should often not be: any value of its metric will do.
                metric = selector.partition("{")[0]
                if not prometheus.values(metric) and not _has_reason(metric):
                    missing.append(f"{rule['name']}: {metric}")
    assert not missing, "\n".join(missing)


def test_nothing_pages_although_a_rank_was_killed(prometheus: Prometheus) -> None:
    firing = [
        alert["labels"]["alertname"]
        for alert in prometheus.get("alerts")["alerts"]
        if alert["state"] == "firing" and alert["labels"]["severity"] == "page"
    ]
    assert firing == []


def test_the_reasons_are_of_metrics_that_are_asked_for() -> None:
    texts = "".join(path.read_text() for path in [*BOARDS, *RULES])
    assert [name for name in WITHOUT_DATA if name not in texts] == []
