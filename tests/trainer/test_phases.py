"""What a script says that it does between steps: nested phases, other ranks, output meanwhile."""

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import ValidationError

from drivetrain import control
from drivetrain.errors import DrivetrainError
from drivetrain.messages import PhaseBegun, StepProgress, decoder, encode_line
from drivetrain.pod import supervision as supervising
from drivetrain.pod.notices import Notices
from drivetrain.pod.ranks import Rank
from drivetrain.pod.supervision import Supervision
from drivetrain.telling import Telling
from tests.trainer.pods import Pod

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
