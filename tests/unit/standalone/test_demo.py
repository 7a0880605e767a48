"""The demo's exit code: 0 for a job that succeeded, and for nothing else."""

import io
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from examples.demo import story
from services.standalone.home import Home
from services.standalone.parts import Plan
from tests.unit.standalone.test_parts import CREDENTIALS

JOB_ID = "job_" + "a" * 26


def job(state: str, **changes: Any) -> dict[str, Any]:
    return {
        "job_id": JOB_ID,
        "state": state,
        "attempt": 1,
        "progress": {"step": 10, "max_steps": 100},
        "detail": "exit code 1",
        "refusal": None,
        "result": None,
        **changes,
    }


REFUSED = {"reason": "no_such_pool", "detail": "there is no pool gpu", "errors": []}
SPEND = {"charged_micro_usd": 5, "accruing_micro_usd": 0, "total_micro_usd": 5}


async def demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *answers: Any, stays: bool = False
) -> tuple[int, str]:
    """What the demo returns and says where the job's reads give these answers, the last for ever.

    A number is an empty answer with that status.
    """
    left = list(answers)

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/checkpoints"):
            return httpx.Response(200, json={"checkpoints": []})
        if request.url.path.endswith("/cost"):
            return httpx.Response(200, json=SPEND)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, int):
            return httpx.Response(answer)
        return httpx.Response(200, json=answer)

    async def submit(_: story.Story) -> str:
        return JOB_ID

    monkeypatch.setattr(story.Story, "_submit", submit)
    monkeypatch.setattr(story, "POLL_SECONDS", 0)
    plan = Plan(Home(tmp_path), {}, CREDENTIALS, (), tmp_path)
    output = io.StringIO()
    client = httpx.AsyncClient(base_url="http://demo", transport=httpx.MockTransport(respond))
    async with client:
        teller = story.Story(plan, client, Console(file=output, soft_wrap=True))
        return await teller.run(stays=stays), output.getvalue()


@pytest.mark.parametrize(
    ("end", "code", "expected"),
    [
        (job("succeeded"), 0, "The job succeeded"),
        (job("failed"), 1, "exit code 1"),
        (job("cancelled"), 1, "The job cancelled"),
        (
            job("rejected", attempt=None, progress=None, refusal=REFUSED),
            1,
            "was refused: there is no pool gpu",
        ),
    ],
)
async def test_the_exit_code_follows_from_the_jobs_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], code: int, expected: str
) -> None:
    exit_code, printed = await demo(tmp_path, monkeypatch, job("running"), end)
    assert (exit_code, expected in printed) == (code, True), printed


async def test_requests_are_retried_until_the_gateway_knows_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_code, printed = await demo(tmp_path, monkeypatch, 503, 404, 404, job("succeeded"))
    assert exit_code == 0, printed


@pytest.mark.parametrize("is_default", [False, True])
async def test_the_command_to_try_next_finds_this_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_default: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / (".drivetrain" if is_default else "other")
    _, printed = await demo(home, monkeypatch, job("succeeded"), stays=True)
    where = "" if is_default else f"DRIVETRAIN_HOME={home} "
    assert f"Try next:  {where}.venv/bin/drivetrain open latest" in printed
    assert f"{where}.venv/bin/drivetrain study submit examples/02-study" in printed


async def test_a_refused_submission_is_not_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real command line, with no platform to speak to."""

    class Refused:
        returncode = 5

        async def communicate(self) -> tuple[bytes, None]:
            return b"", None

    async def start(*arguments: Any, **options: Any) -> Refused:
        return Refused()

    monkeypatch.setattr(story.asyncio, "create_subprocess_exec", start)
    plan = Plan(Home(tmp_path), {}, CREDENTIALS, (), tmp_path)
    async with httpx.AsyncClient() as client:
        teller = story.Story(plan, client, Console(file=io.StringIO()))
        assert await teller.run(stays=False) == 1


async def test_what_no_price_covers_is_not_shown_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zero = {"charged_micro_usd": 0, "accruing_micro_usd": 0, "total_micro_usd": 0}
    unpriced = [{"pool": "default", "device_type": "nvidia-h200"}]
    monkeypatch.setitem(globals(), "SPEND", {**zero, "unpriced": unpriced})
    _, printed = await demo(tmp_path, monkeypatch, job("succeeded"))
    assert "no price for nvidia-h200" in printed
    assert "$0" not in printed
