"""`connection.json` of a running platform stays as it was written."""

import json
from pathlib import Path

import pytest

from services.standalone.connection import connection_text, keep_connection
from tests.unit.standalone.test_parts import make_plan


@pytest.mark.parametrize("damage", [None, b"", b"{", b"\xff\xfe", b"null", b'{"token": "other"}'])
def test_a_damaged_or_deleted_connection_is_written_again(
    tmp_path: Path, damage: bytes | None
) -> None:
    text = connection_text(make_plan(tmp_path))
    file = tmp_path / "connection.json"
    if damage is not None:
        file.write_bytes(damage)
    keep_connection(file, text)
    assert json.loads(file.read_text())["gateway_url"] == make_plan().gateway_url
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_truncated_connection_is_written_again_and_a_whole_one_is_left(tmp_path: Path) -> None:
    text = connection_text(make_plan(tmp_path))
    file = tmp_path / "connection.json"
    file.write_text(text[:-20])
    keep_connection(file, text)
    assert file.read_text() == text
    before = file.stat()
    keep_connection(file, text)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
