"""What a script says between steps: nested phases, other ranks, output meanwhile, alerts."""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import ValidationError
from typer.testing import CliRunner

from drivetrain import control
from drivetrain.cli.main import app
from drivetrain.errors import DrivetrainError
from drivetrain.messages import PhaseBegun, StepProgress, Warned, decoder, encode_line
from drivetrain.pod import supervision as supervising
from drivetrain.pod.events import Events
from drivetrain.pod.notices import Notices
from drivetrain.pod.ranks import Rank
from drivetrain.pod.supervision import Supervision
from drivetrain.telling import Telling
from drivetrain_schemas.reports import ALERT
from tests.trainer.pods import Pod
from tests.unit.trainer.test_ranks import pod_spec

NO_WORDS = ["", "Evaluation", "an evaluation", "x" * 41, "2nd", "eval\n"]


class Script(Telling):
    _rank = 0

    def __init__(self) -> None:
        self._reporter = Mock()

    @property
    def told(self) -> list[str | None]:
        return [call.args[0].name for call in self._reporter.send.call_args_list]


def test_a_phase_in_another_one_ends_in_it() -> None:
    run = Script()
    with run.phase("evaluation"), suppress(OSError), run.phase("upload_2"):
        raise OSError
    assert run.told == ["evaluation", "upload_2", "evaluation", None]


def test_other_ranks_say_nothing() -> None:
    run = Script()
    run._rank = 1
    with run.phase("evaluation"):
        pass
    assert run.told == []


@pytest.mark.parametrize("name", NO_WORDS)
def test_a_name_that_is_no_word_is_refused_with_the_fix(name: str) -> None:
    with pytest.raises(DrivetrainError, match="such as 'evaluation'"), Script().phase(name):
        pass


@pytest.mark.parametrize("name", NO_WORDS)
def test_nor_does_a_shim_take_it_from_any_program(name: str) -> None:
    """A heartbeat could not carry it."""
    with pytest.raises(ValidationError):
        decoder.decode(encode_line(PhaseBegun(name)))


@pytest.mark.parametrize(
    ("title", "text", "told"),
    [
        (" loss jumped ", "to 7.5\n", "loss jumped: to 7.5"),
        ("data ran out", "", "data ran out"),
        ("x" * 1000, "y" * 1000, "x" * 100 + ": " + "y" * 500),
        ("half \ud800", "", "half \ufffd"),
        ("", "", "alert"),
    ],
)
def test_an_alert_is_told_by_any_rank_within_bounds(title: str, text: str, told: str) -> None:
    run = Script()
    run._rank = 3
    run.alert(title, text)
    run._reporter.alert.assert_called_once_with(told)
    line = encode_line(Warned(ALERT, told))
    record = Events(pod_spec()).warned(decoder.decode(line))
    assert json.loads(record.value)["detail"] == told


def test_an_alert_of_another_language_leaves_the_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_CONTROL_SOCKET", str(tmp_path / "socket"))
    with control.listen(tmp_path / "socket") as listener:
        listener.setblocking(True)

        def told(*arguments: str) -> list[Any]:
            ran = CliRunner().invoke(app, ["report", *arguments])
            assert ran.exit_code == 0, ran.output
            with listener.accept()[0] as connection, connection.makefile("rb") as lines:
                return [decoder.decode(line) for line in lines]

        alert = Warned(ALERT, "data ran out")
        assert told("--alert", "data ran out") == [alert]
        assert told("--alert", "data ran out", "--phase", "waiting") == [
            alert, PhaseBegun("waiting")
        ]  # fmt: skip
        assert told() == [PhaseBegun()]


async def test_a_pod_passes_on_ten_alerts_of_any_program_once(tmp_path: Path) -> None:
    """They come from `drivetrain report`, a process each, and from every rank."""
    pod = Pod(tmp_path, command="true")
    with control.listen(tmp_path / "socket") as listener:
        seen = Supervision(pod.spec, Notices(pod.directory), [Rank(0, 2**22, 0)], listener)
        sent: list[tuple[str, str]] = []
        seen._telemetry.put = lambda record: sent.append(  # type: ignore[method-assign]
            tuple(json.loads(record.value)[name] for name in ("warning", "detail"))  # type: ignore[arg-type]
        )
        for number in [*range(12), 0, 1]:
            line = encode_line(Warned(ALERT, f"number {number}"))
            seen._take(decoder.decode(line), Mock(spec=asyncio.StreamWriter))
        seen._say_what_was_left_out()
        assert sent[:-1] == [(ALERT, f"number {number}") for number in range(10)]
        assert sent[-1] == ("alerts_left_out", "2 alerts were left out: a pod raises 10 in a run")
        assert "2 alerts were left out" in (pod.directory / "log").read_text()
        assert not seen._uses_package, "any program may report"
        seen._log_file.close()


async def test_output_counts_while_a_phase_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(supervising.time, "monotonic", lambda: now)
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    pod = Pod(tmp_path, command="true")
    rank = Rank(0, 2**22, reads)
    with control.listen(tmp_path / "socket") as listener:
        seen = Supervision(pod.spec, Notices(pod.directory), [rank], listener)

        def beat(message: Any = None, output: bytes = b"") -> tuple[str | None, float | None]:
            if message is not None:
                line = encode_line(message)
                seen._take(decoder.decode(line), Mock(spec=asyncio.StreamWriter))
            if output:
                os.write(writes, output)
                seen._read(rank)
            seen._beat("training")
            said = json.loads(seen._telemetry._heartbeat.value)
            return said.get("doing"), said.get("quiet_seconds")

        assert beat(StepProgress(step=1), b"a line\n") == (None, None)
        assert beat(PhaseBegun("evaluation")) == ("evaluation", 0.0)
        now += 30
        assert beat() == ("evaluation", 30.0)
        assert beat(None, b"half a line") == ("evaluation", 0.0)
        now += 7
        assert beat(PhaseBegun("evaluation")) == ("evaluation", 7.0), "said again"
        assert beat(PhaseBegun()) == (None, 0.0)
        now += 9
        assert beat(None, b"a line\n") == (None, 9.0), "after it, steps count"
        seen._log_file.close()
    os.close(reads)
    os.close(writes)
