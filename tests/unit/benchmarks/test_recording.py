"""What a recorded result must hold."""

from argparse import Namespace
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.catalogue import NAMES
from benchmarks.recording import RESULTS, Result, read, result_path
from benchmarks.report import options_of
from tests.unit.benchmarks.results import FIELDS, result, row


@pytest.mark.parametrize("name", list(FIELDS))
def test_a_result_without_any_of_its_fields_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Result.model_validate({key: value for key, value in FIELDS.items() if key != name})


@pytest.mark.parametrize(
    "fields",
    [
        {"commit": ""},
        {"commit": "7c4dba1e1"},
        {"date": "yesterday"},
        {"machine": {"cores": 2}},
        {"rows": []},
        {"rows": [row(unit="s")]},
        {"note": "fast"},
    ],
)
def test_a_result_with_a_wrong_field_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        result(**fields)


def test_a_result_is_read_as_it_was_written() -> None:
    written = result(rows=[row(remark="no longer true"), row(id="other", ratio=None)])
    assert Result.model_validate_json(written.to_json()) == written


def test_every_recorded_result_is_of_the_benchmark_of_its_name() -> None:
    for path in RESULTS.glob("*.json"):
        assert path.stem in NAMES
        found = read(path.stem)
        assert found is not None
        assert found.benchmark == path.stem
        assert path.read_text() == found.to_json(), "written by hand, in another form"


@pytest.mark.parametrize(
    ("quick", "path", "is_whole", "recorded"),
    [
        (False, None, True, result_path("drain")),
        (False, None, False, None),
        (True, None, True, None),
        (True, Path("here"), True, Path("here")),
        (False, Path("here"), True, Path("here")),
    ],
)
def test_only_a_whole_run_is_recorded(
    quick: bool, path: Path | None, is_whole: bool, recorded: Path | None
) -> None:
    given = options_of("drain", Namespace(quick=quick, json=path), is_whole=is_whole)
    assert given.path == recorded
