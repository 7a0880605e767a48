"""What must not be written to a log is masked: by key, in texts, and in tracebacks."""

import json

import pytest
import structlog

from services.runtime import logs

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
