"""Which lines a search finds."""

import pytest

from services.metrics.core.log_search import Chunk, Wanted

LINES = ("ΟΔΟΣ", "straße", "Loss: nan")


@pytest.mark.parametrize(
    ("text", "found"), [("οδοσ", [0]), ("οδος", [0]), ("STRASSE", [1]), ("loss", [2]), ("x", [])]
)
def test_text_is_found_in_any_case_of_any_script(text: str, found: list[int]) -> None:
    chunk = Chunk(1, 0, 0, len(LINES), 0, 0.0, LINES)
    assert list(Wanted(text=text).indices(chunk)) == found
