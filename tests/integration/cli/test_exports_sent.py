"""Exports over HTTP and of studies: OpenLineage events to a service, a study's trials together."""

import csv
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivetrain.cli import session
from drivetrain.cli.connection import Connection
from drivetrain.cli.gateway import Gateway
from tests.exchange.stored_job import JOB_ID, StoredJob, make_job, make_view
from tests.unit.cli.conftest import RunCli

OTHER_ID, STUDY_ID = "job_" + "c" * 26, "study_" + "c" * 26
Answer = tuple[int, dict[str, str]]
OK: Answer = (200, {})


class Receiver(HTTPServer):
    """Gives the `answers` in turn, then 200; keeps what it received."""

    answers: list[Answer]
    received: list[tuple[str, str | None, Any]]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers = self.server.answers.pop(0) if self.server.answers else OK
        if status == 200:
            kept = self.path, self.headers["Authorization"], json.loads(body)
            self.server.received.append(kept)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving(*answers: Answer) -> Iterator[Receiver]:
    with Receiver(("127.0.0.1", 0), _Handler) as server:
        server.answers, server.received = list(answers), []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def address(server: Receiver) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_service_that_was_away_gets_every_event_once(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "connect", make_job().gateway)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    file = tmp_path / "events.jsonl"
    with receiving(OK, (503, {}), (503, {})) as server:
        sent = cli("job", "export", JOB_ID, "--openlineage", address(server))
    assert sent.code == 0, sent.err
    assert cli("job", "export", JOB_ID, "--openlineage", str(file)).code == 0
    expected = [json.loads(line) for line in file.read_text().splitlines()]
    assert [event for _, _, event in server.received] == expected
    assert {one[:2] for one in server.received} == {("/api/v1/lineage", "Bearer secret")}


def test_a_redirect_does_not_get_the_key(monkeypatch: pytest.MonkeyPatch, cli: RunCli) -> None:
    monkeypatch.setattr(session, "connect", make_job().gateway)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    with receiving() as elsewhere, receiving((307, {"Location": address(elsewhere)})) as server:
        refused = cli("job", "export", JOB_ID, "--openlineage", address(server) + "/mine")
    assert (refused.code, "refused (307)" in refused.err) == (5, True)
    assert (server.received, elsewhere.received) == ([], [])


def test_the_trials_of_a_study_are_one_file(
    monkeypatch: pytest.MonkeyPatch, cli: RunCli, tmp_path: Path
) -> None:
    """A trial that has no job yet has no samples."""
    trials = {
        JOB_ID: StoredJob(samples={(1, 0, "loss"): {1: 0.5}}),
        OTHER_ID: StoredJob(make_view(job_id=OTHER_ID), samples={(1, 0, "loss"): {1: 0.25}}),
    }

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == f"/v1/studies/{STUDY_ID}":
            return httpx.Response(200, json={"study_id": STUDY_ID, "name": "search"})
        if request.url.path == f"/v1/studies/{STUDY_ID}/trials":
            listed = [{"job_id": one} for one in (*trials, None)]
            return httpx.Response(200, json={"trials": listed, "next": None})
        return trials[request.url.path.split("/")[3]].respond(request)

    def connect() -> Gateway:
        where = Connection("http://platform.test", "token")
        return Gateway(where, httpx.MockTransport(respond))

    monkeypatch.setattr(session, "connect", connect)
    file = tmp_path / "samples.csv"
    ran = cli("job", "export", "--study", STUDY_ID, "--csv", str(file))
    assert ran.code == 0, ran.err
    with file.open() as opened:
        rows = [(row["job"], row["value"]) for row in csv.DictReader(opened)]
    assert rows == [(JOB_ID, "0.5"), (OTHER_ID, "0.25")]
