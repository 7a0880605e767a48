"""The end of a log, as a person sees it when a part cannot be started."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from services.standalone.logs import last_lines, readable, rotate_log


def test_a_services_json_line_becomes_one_readable_line_with_the_end_of_its_exception() -> None:
    exception = "\n".join(["Traceback", *(f"frame {number}" for number in range(50)), "KeyError"])
    entry = {"event": "service failed", "level": "error", "timestamp": "12:00", "job_id": "job_1"}
    shown = readable(json.dumps({**entry, "exception": exception})).splitlines()
    assert shown[0] == "12:00 error   service failed job_id=job_1"
    assert shown[-1].strip() == "KeyError"
    assert len(shown) == 13


def test_other_lines_stay_as_they_are() -> None:
    text = 'plain\n{"half": \n[1]\n{"event": "no level"}\n3'
    assert readable(text) == text


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(50_000)))
    assert last_lines(path, 2) == "line 49998\nline 49999"
    assert last_lines(tmp_path / "missing", 2) == ""


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("12345")
    assert not rotate_log(path, limit_bytes=5)
    assert rotate_log(path, limit_bytes=4)
    assert path.read_text() == ""
    assert (tmp_path / "log.1").read_text() == "12345"


def test_on_a_full_disk_a_log_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", refuse)
    path = tmp_path / "log"
    path.write_text("12345")
    (tmp_path / "log.1").write_text("older")
    assert rotate_log(path, limit_bytes=4)
    assert path.read_text() == ""
    assert not (tmp_path / "log.1").exists()
