"""What the shim leaves out, samples and lines, is counted and reported in heartbeats."""

import asyncio
import json
import os
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from drivetrain import control, environment
from drivetrain.messages import StepProgress, decoder
from drivetrain.pod import kept_output, telemetry
from drivetrain.pod.notices import Notices
from drivetrain.pod.ranks import Rank
from drivetrain.pod.supervision import Supervision
from drivetrain.reporting import Reporter
from drivetrain.samples import LastAndBest
from tests.mounts import mounted
from tests.trainer.pods import Pod


class Sink:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def send(self, line: bytes) -> bool:
        self.lines.append(line)
        return True

    def acknowledged(self) -> list[tuple[str, str, int]]:
        return []

    def close(self) -> None:
        return


async def test_each_sample_of_a_batch_counts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(telemetry, "MAX_WAITING_BYTES", 0)
    sink = Sink()
    reporter = Reporter(environment.read({}), sink, LastAndBest(), lambda: StepProgress(step=1))
    for step in range(50):
        reporter.log(step, {"loss": 0.5, "rate": 0.1})
    reporter.start()
    reporter.close(60)
    pod = Pod(tmp_path, command="true")
    with control.listen(tmp_path / "socket") as listener:
        supervision = Supervision(pod.spec, Notices(pod.directory), [], listener)
        writer = Mock(spec=asyncio.StreamWriter)
        writer.is_closing.return_value = False
        for line in sink.lines:
            supervision._take(decoder.decode(line), writer)
        supervision._take(StepProgress(step=1, num_dropped=3, num_refused=4), writer)
        supervision._beat("training")
        supervision._log_file.close()
    heartbeat = json.loads(supervision._telemetry._heartbeat.value)
    assert heartbeat["num_dropped_samples"] == 103
    assert heartbeat["num_refused_samples"] == 4


@pytest.mark.parametrize(
    ("wanted", "allowed", "is_whole"),
    [(200, 1024, False), (8192, 8192, True), (8192, 1024, False), (200, 8192, False)],
)
async def test_a_job_may_have_more_output_up_to_the_bound_of_the_operator(
    tmp_path: Path, wanted: int, allowed: int, is_whole: bool
) -> None:
    line, number = b"x" * 1023 + b"\n", 4096
    (tmp_path / "output").write_bytes(line * number)
    pod = Pod(tmp_path, command="true", logs={"kib_per_second": wanted})
    spec = pod.spec.model_copy(update={"max_log_kib_per_second": allowed})
    output = os.open(tmp_path / "output", os.O_RDONLY)
    rank = Rank(0, os.getpid(), output)
    with control.listen(tmp_path / "socket") as listener:
        supervision = Supervision(spec, Notices(pod.directory), [rank], listener)
        while supervision._read(rank):
            continue
        supervision._beat("training")
        supervision._log_file.close()
    os.close(output)
    num_dropped = json.loads(supervision._telemetry._heartbeat.value)["num_dropped_log_bytes"]
    assert num_dropped == 0 if is_whole else len(line) * number // 2 < num_dropped


@pytest.mark.parametrize("is_bounded_by_the_disk", [False, True])
async def test_a_flood_of_output_leaves_its_first_and_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bounded_by_the_disk: bool
) -> None:
    bound = 3 * 1024**2
    with mounted(tmp_path / "disk", "size=60m") if is_bounded_by_the_disk else nullcontext():
        if not is_bounded_by_the_disk:
            monkeypatch.setattr(kept_output, "MAX_BYTES", bound)
        pod = Pod(tmp_path / "disk", command="true")
        with control.listen(tmp_path / "socket") as listener:
            rank = Rank(0, os.getpid(), 0)
            supervision = Supervision(pod.spec, Notices(pod.directory), [rank], listener)
            for number in range(8 * 1024):
                supervision._keep(b"%08d" % number + b"x" * 1015 + b"\n")
            supervision._log_file.close()
        kept = {path.name: path.read_bytes() for path in pod.directory.glob("log*")}
    assert kept["log"].startswith(b"00000000x")
    assert kept["log.last"].splitlines()[-1].startswith(b"00008191x")
    end = (kept["log.before"] + kept["log.last"]).splitlines()
    assert [int(line[:8]) for line in end] == list(range(8192 - len(end), 8192))
    assert bound * 0.6 < sum(map(len, kept.values())) < bound * 1.01


async def test_a_directory_in_the_place_of_the_last_lines_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_output, "MAX_BYTES", 0)
    pod = Pod(tmp_path, command="true")
    (pod.directory / "log.last").mkdir()
    (pod.directory / "log.before").write_text("of the job")
    with control.listen(tmp_path / "socket") as listener:
        rank = Rank(0, os.getpid(), 0)
        supervision = Supervision(pod.spec, Notices(pod.directory), [rank], listener)
        for _ in range(3):
            supervision._keep(b"x" * 1024**2)
        supervision._log_file.close()
    assert (pod.directory / "log").stat().st_size == 1024**2
