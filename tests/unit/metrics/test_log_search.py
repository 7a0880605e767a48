"""Which lines a search finds."""

from typing import Any

import pytest

from services.metrics.core.log_levels import Level
from services.metrics.core.log_search import Chunk, Wanted

LINES = ("ΟΔΟΣ", "straße", "Loss: nan")


@pytest.mark.parametrize(
    ("text", "found"), [("οδοσ", [0]), ("οδος", [0]), ("STRASSE", [1]), ("loss", [2]), ("x", [])]
)
def test_text_is_found_in_any_case_of_any_script(text: str, found: list[int]) -> None:
    chunk = Chunk(1, 0, 0, len(LINES), 0, 0.0, LINES)
    assert list(Wanted(text=text).indices(chunk)) == found


CHUNK = Chunk(2, 3, 0, 3, 0, 100.0, ("INFO:root:begin", "ERROR:root:lost", "lost too"))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [0, 1, 2]),
        ({"rank": 3, "attempt": 2}, [0, 1, 2]),
        ({"rank": 0}, []),
        ({"attempt": 1}, []),
        ({"since": 100.0}, [0, 1, 2]),
        ({"since": 100.5}, []),
        ({"until": 100.0}, []),
        ({"until": 100.5}, [0, 1, 2]),
        ({"since": 99.0, "until": 101.0}, [0, 1, 2]),
        ({"since": 0.0, "until": 0.0}, []),
        ({"level": Level.INFO}, [0, 1]),
        ({"level": Level.WARNING}, [1]),
        ({"level": Level.ERROR}, [1]),
        ({"level": Level.CRITICAL}, []),
        ({"text": "lost"}, [1, 2]),
        ({"text": "lost", "level": Level.INFO}, [1]),
        ({"text": "begin", "level": Level.ERROR}, []),
    ],
)
def test_lines_of_a_chunk_are_wanted_by_all_that_is_asked(
    wanted: dict[str, Any], found: list[int]
) -> None:
    assert list(Wanted(**wanted).indices(CHUNK)) == found
    assert list(Wanted(**wanted).indices(CHUNK._replace(lines=None))) == []
