"""Reading YAML: plain values with their lines; ambiguous input is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.cli.documents import MAX_BYTES, read_document
from drivetrain.cli.errors import InvalidInput

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]))
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: 1\nb: [1, 2.5]\n", {"a": 1, "b": [1, 2.5]}, id="plain"),
        pytest.param("a: 1e-3", {"a": 0.001}, id="a number without a point is a number"),
        pytest.param("a: no\nb: on", {"a": "no", "b": "on"}, id="no and on are text"),
        pytest.param("a: 2026-01-01", {"a": "2026-01-01"}, id="a date is text"),
        pytest.param("a: 1:30", {"a": "1:30"}, id="no base 60"),
        pytest.param("a: 010\nb: 0o10\nc: 0x10", {"a": 10, "b": 8, "c": 16}, id="bases"),
        pytest.param("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}, id="quoted is text"),
        pytest.param("a: |\n  12\n", {"a": "12\n"}, id="a block is text"),
        pytest.param("a:\nb: ~", {"a": None, "b": None}, id="nothing"),
        pytest.param('{"a": [true, null, 1.5e3]}', {"a": [True, None, 1500.0]}, id="JSON"),
        pytest.param("---\na: 1\n...\n", {"a": 1}, id="document markers"),
    ],
)
def test_values(text: str, want: object) -> None:
    value = read_document(text, "job.yaml").value
    assert value == want
    assert repr(value) == repr(want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: 1\nb: 2\na: 3", "job.yaml:3: the key a occurs twice", id="duplicate key"),
        pytest.param("x:\n  a: 1\n  a: 2", "job.yaml:3: the key a", id="duplicate below"),
        pytest.param("a: &x [1]\nb: *x", "job.yaml:1: the anchor &x", id="anchor"),
        pytest.param("a: *x", "alias", id="alias"),
        pytest.param("a: !!python/name:os.system x", "job.yaml:1: the tag", id="tag"),
        pytest.param("a: 1\nb: .nan", "job.yaml:2: .nan is not a finite number", id="nan"),
        pytest.param("a: -.inf", "not a finite number", id="infinity"),
        pytest.param("a: 1e999", "too large a number", id="overflow"),
        pytest.param(f"a: {'9' * 100}", "a number of 100 digits", id="endless digits"),
        pytest.param("a: 1\n---\nb: 2", "job.yaml:2: a second document", id="two documents"),
        pytest.param("1: 2", "the key 1 is not a string", id="a number as key"),
        pytest.param("[" * 5000, "nested deeper than 32 levels", id="deep lists"),
        pytest.param("{a: " * 5000, "nested deeper than 32 levels", id="deep mappings"),
        pytest.param("a: [1, 2", "job.yaml:2: not YAML", id="unclosed"),
        pytest.param("a: b: c", "not YAML", id="not YAML"),
        pytest.param("a: \0", "not YAML", id="control character"),
        pytest.param("", "is empty", id="nothing"),
        pytest.param("# a comment\n", "is empty", id="only a comment"),
        pytest.param(b"a: \xff", "is not UTF-8", id="other encoding"),
        pytest.param("a" * (MAX_BYTES + 1), "1,048,577 bytes", id="too large"),
    ],
)
def test_refusals(text: str | bytes, want: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_document(text, "job.yaml")
    assert want in refusal.value.message


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    with pytest.raises(InvalidInput, match="anchor"):
        read_document("\n".join(lines), "job.yaml")


def test_every_field_has_its_line() -> None:
    document = read_document("name: x\nspace:\n  a:\n    low: 1\nlist:\n- 1\n- b: 2\n", "s.yaml")
    assert document.place("name") == "s.yaml:1"
    assert document.place("space.a.low") == "s.yaml:4"
    assert document.place("space.a.high") == "s.yaml:3"
    assert document.place("list.1.b") == "s.yaml:7"
    assert document.place("nowhere") == "s.yaml"


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=10))
def test_json_is_read_as_json(value: object) -> None:
    text = json.dumps({"value": value}, ensure_ascii=False)
    assert read_document(text, "job.json").value == {"value": value}
