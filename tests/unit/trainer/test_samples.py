"""Samples in columns; values that are not numbers are left out, NaN and infinity are names."""

import json
import math

import pytest

from drivetrain.results import make_result
from drivetrain.samples import MAX_SERIES_PER_BATCH, Columns, LastAndBest
from drivetrain_schemas.specs import MAX_LAST_VALUES


class Array:
    """Something with one value, like a tensor."""

    def __init__(self, value) -> None:
        self._value = value

    def item(self):
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def sort(*entries, last_and_best: LastAndBest | None = None) -> Columns:
    columns = Columns.of(
        [part for step, values in entries for item in values.items() for part in (step, *item)]
    )
    (last_and_best or LastAndBest()).take(columns.series)
    return columns


def test_samples_of_a_series_are_in_one_column() -> None:
    columns = sort((1, {"loss": 0.5, "rate": 1}), (2, {"loss": Array(0.25)}))
    assert list(columns.to_json()) == [
        {
            "loss": {"steps": [1, 2], "values": [0.5, 0.25]},
            "rate": {"steps": [1], "values": [1.0]},
        }
    ]


@pytest.mark.parametrize(
    "logged",
    [
        pytest.param([(1, "a", 0.5)], id="one"),
        pytest.param([(step, name, step / 3) for step in range(5) for name in "abc"], id="turns"),
        pytest.param(
            [(step, name, step / 3) for step in range(5) for name in "abc"][1:-1],
            id="cut at both ends",
        ),
        pytest.param([(1, "a", 1.0), (1, "b", 2.0), (1, "b", 3.0)] * 2, id="twice in a turn"),
        pytest.param([(1, "a", 1.0), (1, "b", 2.0), (2, "a", 3.0), (2, "c", 4.0)], id="another"),
        pytest.param([(1, "a", 1.0), (1, "b", 2.0), (2, "a", 3), (2, "b", 4.0)], id="an integer"),
        pytest.param([(1, "a", math.nan), (1, "a", 1.0)] * 2, id="one series, twice a step"),
    ],
)
def test_each_sample_is_in_the_column_of_its_name(logged) -> None:
    series = Columns.of([part for one in logged for part in one]).series
    assert list(series) == list(dict.fromkeys(name for _, name, _ in logged))
    for name, (steps, values) in series.items():
        assert steps == [step for step, of, _ in logged if of == name]
        assert repr(values) == repr([float(value) for _, of, value in logged if of == name])


def test_nan_and_infinity_arrive_by_name() -> None:
    columns = sort((1, {"loss": math.nan}), (2, {"loss": math.inf}), (3, {"loss": -math.inf}))
    (piece,) = columns.to_json()
    assert piece["loss"]["values"] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"loss": "low"}, id="a string"),
        pytest.param({"loss": None}, id="nothing"),
        pytest.param({"loss": Array(ValueError("two elements"))}, id="more than one element"),
        pytest.param({"loss": 10**400}, id="too large for a float"),
        pytest.param({"loss": Array(KeyError("x"))}, id="any exception"),
        pytest.param({0: 1.0}, id="a name that is not a string"),
        pytest.param({"two\nlines": 1.0}, id="a name of two lines"),
        pytest.param({" loss": 1.0}, id="a space in front of a name"),
        pytest.param({"": 1.0}, id="no name"),
        pytest.param({"\ud800": 1.0}, id="a name that is not Unicode"),
        pytest.param({"x" * 129: 1.0}, id="a name too long"),
    ],
)
def test_what_cannot_be_sent_is_counted(values) -> None:
    columns = sort((1, values))
    assert (columns.num_samples, columns.num_refused) == (0, 1)


@pytest.mark.parametrize("name", ["mAP@0.5", "val loss", "top5%", "a,b", "précision", "損失", "5"])
def test_names_are_sent_as_they_were_written(name: str) -> None:
    (piece,) = sort((1, {name: 0.5})).to_json()
    assert list(piece) == [name]


def test_many_series_are_split() -> None:
    names = [f"layer_{number}" for number in range(2 * MAX_SERIES_PER_BATCH + 1)]
    pieces = list(sort((1, dict.fromkeys(names, 0.5))).to_json())
    assert [len(piece) for piece in pieces] == [MAX_SERIES_PER_BATCH, MAX_SERIES_PER_BATCH, 1]
    assert [name for piece in pieces for name in piece] == names


def test_a_chunk_of_many_samples_is_split_to_fit_events() -> None:
    entries = [
        (step, {f"layer_{number}": step / 3e-300 for number in range(40)}) for step in range(2000)
    ]
    pieces = [json.dumps(piece) for piece in sort(*entries).to_json()]
    assert len(pieces) == 20
    assert max(map(len, pieces)) < 200 * 1024


@pytest.mark.parametrize(("is_maximized", "want"), [(True, (0.9, 2)), (False, (0.1, 3))])
def test_best_is_the_first_at_the_best_value(is_maximized, want) -> None:
    last_and_best = LastAndBest("score", is_maximized)
    entries = [(1, 0.5), (2, 0.9), (3, 0.1), (4, 0.9), (5, 0.1), (6, math.nan)]
    sort(*((step, {"score": value}) for step, value in entries), last_and_best=last_and_best)
    assert last_and_best.best == want
    assert last_and_best.last_values() == {"score": 0.1}


def test_best_survives_a_checkpoint() -> None:
    before = LastAndBest("score", is_maximized=True)
    sort((7, {"score": 0.9, "loss": 0.3}), last_and_best=before)
    after = LastAndBest("score", is_maximized=True)
    after.restore(before.to_json())
    sort((8, {"score": 0.5}), last_and_best=after)
    assert after.best == (0.9, 7)
    assert after.last == {"score": (0.5, 8), "loss": (0.3, 7)}


def test_a_value_belongs_to_its_own_step_only() -> None:
    last_and_best = LastAndBest()
    sort(
        (1, {"a": 0.1, "b": 0.2}),
        (2, {"a": 0.3}),
        (3, {"a": math.nan}),
        last_and_best=last_and_best,
    )
    assert [last_and_best.values_at(step) for step in (1, 2, 3)] == [{"b": 0.2}, {"a": 0.3}, {}]


def test_of_too_many_series_the_first_are_kept_and_the_metric() -> None:
    last_and_best = LastAndBest("score")
    names = [f"layer_{number}" for number in range(MAX_LAST_VALUES + 3)]
    columns = Columns.of([part for name in names for part in (1, name, 0.5)])
    assert last_and_best.take(columns.series) == names[MAX_LAST_VALUES - 1 :]
    sort((2, {"score": 0.9}), (3, dict.fromkeys(names, 0.6)), last_and_best=last_and_best)
    assert list(make_result(3, last_and_best).metrics) == [*names[: MAX_LAST_VALUES - 1], "score"]
    assert last_and_best.last_values()["layer_0"] == 0.6
