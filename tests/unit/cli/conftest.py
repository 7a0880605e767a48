"""A platform with prepared responses, and the command line run against it."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from drivetrain.cli import gateway, logs, session, waiting
from drivetrain.cli.connection import Connection
from drivetrain.cli.main import main

URL = "http://platform.test:8080"


@dataclass
class FakePlatform:
    """Answers `(method, path)` from `answers`: a value, or several one after another.

    An exception is raised, a number is an empty answer with this status, a problem is a dictionary
    with a `status` of 400 or more.
    """

    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def on(self, method: str, path: str, *answers: Any) -> None:
        self.answers[(method, path)] = list(answers)

    def respond(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        waiting_answers = self.answers.get((request.method, request.url.path))
        if waiting_answers is None:
            problem = {"status": 404, "detail": f"no {request.url.path}"}
            return httpx.Response(404, json=problem)
        answer = waiting_answers.pop(0) if len(waiting_answers) > 1 else waiting_answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx.Response(answer)
        if isinstance(answer, bytes):
            return httpx.Response(200, content=answer)
        status = answer.get("status", 200) if isinstance(answer, dict) else 200
        code = status if isinstance(status, int) else 200
        return httpx.Response(code, json=answer, headers=self.headers)

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(one.content) for one in self.requests if one.url.path == path]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


RunCli = Callable[..., Ran]


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> FakePlatform:
    fake = FakePlatform()

    def connect() -> gateway.Gateway:
        return gateway.Gateway(
            Connection(URL, "token-of-the-test"), httpx.MockTransport(fake.respond)
        )

    monkeypatch.setattr(session, "connect", connect)
    for module in (waiting, logs):
        monkeypatch.setattr(module, "POLL_SECONDS", 0)
    monkeypatch.setattr(gateway, "BACKOFF_SECONDS", 0)
    monkeypatch.setattr(gateway, "SUBMIT_PAUSE_SECONDS", 0)
    monkeypatch.setattr(gateway, "SUBMIT_SECONDS", 0.2)
    return fake


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["drivetrain", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return Ran(int(exit_.value.code or 0), captured.out, captured.err)

    return run
