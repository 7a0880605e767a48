"""What must not be written to a log is masked: by key, in texts, and in tracebacks."""

import json
import logging

import pytest
import structlog

from services.runtime import logs
from services.runtime.logs import OncePerPeriod

SECRET = "hunter2-swordfish"


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


def written(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    json.loads(text)
    return text


@pytest.mark.parametrize(
    "key", ["password", "kafka_sasl_password", "api_token", "Authorization", "cookie", "api_key"]
)
def test_a_secret_key_is_masked_at_any_depth(key: str) -> None:
    line = logs.redact(None, "info", {"outer": [{key: SECRET, "step": 3}]})
    assert SECRET not in str(line)
    assert line["outer"][0]["step"] == 3


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://drivetrain:{SECRET}@127.0.0.1:5432/drivetrain",
        f"postgresql://drivetrain:p@ss-{SECRET}@127.0.0.1/drivetrain",
        f"cannot connect to host=db user=cost password={SECRET} dbname=x",
        f"sasl_plain_password='{SECRET}'",
        f'{{"api_token": "{SECRET}"}}',
        f"refused: Authorization: Bearer {SECRET}",
        f"https://gateway/?token={SECRET}&next=/",
    ],
)
def test_a_secret_inside_a_text_is_masked(text: str) -> None:
    line = logs.redact(None, "info", {"event": "x", "error": text})
    assert SECRET not in line["error"]
    assert logs.MASK in line["error"]


@pytest.mark.parametrize(
    "text", ["job_abc is waiting", "tokens_per_second is 3", "http://127.0.0.1:8080/readyz"]
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert logs.redact(None, "info", {"detail": text})["detail"] == text


def test_a_traceback_is_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("cost")
    try:
        raise OSError(f"postgresql://drivetrain:{SECRET}@127.0.0.1/drivetrain refused")
    except OSError:
        logs.get().exception("service failed, the process ends")
    text = written(capsys)
    assert "Traceback" in text
    assert SECRET not in text


def test_a_line_is_one_json_object_with_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("cost")
    logs.get().info("charge recorded", job_id="job_a")
    line = json.loads(written(capsys))
    assert (line["event"], line["job_id"], line["service"]) == ("charge recorded", "job_a", "cost")
    assert line["timestamp"].endswith("Z")


def test_lines_of_one_template_come_once_a_minute_with_their_number() -> None:
    now = [0.0]
    repeats = OncePerPeriod(60.0, lambda: now[0])

    def write(seconds: float, template: str, port: int) -> str | None:
        now[0] = seconds
        line = logging.LogRecord("aiokafka", logging.ERROR, "", 0, template, (port,), None)
        return line.getMessage() if repeats.filter(line) else None

    assert write(0, "Unable connect to %s", 1) == "Unable connect to 1"
    assert [write(second, "Unable connect to %s", 2) for second in range(1, 60)] == [None] * 59
    assert write(59, "Something else of %s", 3) == "Something else of 3"
    assert write(60, "Unable connect to %s", 4) == "Unable connect to 4 (and 59 more like this)"
    assert write(61, "Unable connect to %s", 5) is None
    assert write(120, "Unable connect to %s", 6) == "Unable connect to 6 (and 1 more like this)"


def test_only_aiokafka_is_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("tests")
    for name in ("aiokafka.client", "uvicorn.error"):
        for _ in range(5):
            logging.getLogger(name).error("Unable connect to %s", "somewhere")
    lines = [json.loads(line)["logger"] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["aiokafka.client", *["uvicorn.error"] * 5]
