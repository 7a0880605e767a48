"""Samples in columns; what is no number is left out, what is not finite is spelt."""

import math

import pytest

from drivetrain.samples import MAX_SAMPLES_PER_BATCH, Columns, Standing, sort_in


class Array:
    """Something with one value, like a tensor."""

    def __init__(self, value) -> None:
        self._value = value

    def item(self):
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def sort(*entries, standing: Standing | None = None) -> Columns:
    columns = Columns()
    sort_in(entries, columns, standing or Standing())
    return columns


def test_samples_of_a_series_stand_in_one_column() -> None:
    columns = sort((1, {"loss": 0.5, "rate": 1}), (2, {"loss": Array(0.25)}))
    assert columns.to_json() == {
        "loss": {"steps": [1, 2], "values": [0.5, 0.25]},
        "rate": {"steps": [1], "values": [1.0]},
    }


def test_what_is_not_finite_arrives_by_name() -> None:
    columns = sort((1, {"loss": math.nan}), (2, {"loss": math.inf}), (3, {"loss": -math.inf}))
    assert columns.to_json()["loss"]["values"] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"loss": "low"}, id="a string"),
        pytest.param({"loss": None}, id="nothing"),
        pytest.param({"loss": Array(ValueError("two elements"))}, id="more than one element"),
        pytest.param({"la perte": 1.0}, id="a name that is none"),
        pytest.param({"x" * 129: 1.0}, id="a name too long"),
    ],
)
def test_what_cannot_be_sent_is_counted(values) -> None:
    columns = sort((1, values))
    assert (columns.num_samples, columns.num_refused) == (0, 1)


def test_a_batch_is_bounded() -> None:
    columns = Columns()
    for step in range(MAX_SAMPLES_PER_BATCH):
        assert not columns.is_full
        columns.add(step, "loss", 1.0)
    assert columns.is_full


@pytest.mark.parametrize(("is_maximized", "want"), [(True, (0.9, 2)), (False, (0.1, 3))])
def test_best_is_the_first_at_the_best_value(is_maximized, want) -> None:
    standing = Standing("score", is_maximized)
    entries = [(1, 0.5), (2, 0.9), (3, 0.1), (4, 0.9), (5, 0.1), (6, math.nan)]
    sort(*((step, {"score": value}) for step, value in entries), standing=standing)
    assert standing.best == want
    assert standing.last == {"score": 0.1}


def test_best_survives_a_checkpoint() -> None:
    before = Standing("score", is_maximized=True)
    sort((7, {"score": 0.9, "loss": 0.3}), standing=before)
    after = Standing("score", is_maximized=True)
    after.restore(before.to_json())
    sort((8, {"score": 0.5}), standing=after)
    assert after.best == (0.9, 7)
    assert after.last == {"score": 0.5, "loss": 0.3}
