"""Constraints: what is read, what is refused with which words, and what satisfies them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.base import Misfit
from drivetrain_schemas.expressions import Kind, check, parse

NUMBER, TEXT, BOOLEAN = (frozenset({kind}) for kind in (Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN))
KINDS = {"width": NUMBER, "depth": NUMBER, "optimizer": TEXT, "nesterov": BOOLEAN}
KINDS["mixed"] = NUMBER | TEXT
POINT = {"width": 64, "depth": 4, "optimizer": "sgd", "nesterov": True, "mixed": "a"}


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("width * depth <= 256", True),
        ("width * depth < 256", False),
        ("1 < depth < 5 and width % 2 == 0", True),
        ("not (optimizer == 'sgd' and nesterov) or width ** 2 == 4096", True),
        ("optimizer != 'adam'", True),
        ("nesterov", True),
        ("nesterov == false", False),
        ("mixed == 'a'", True),
        ("mixed == 1 or mixed == 'b'", False),
        ("min(width, depth, 7) == 4", True),
        ("abs(depth - width) // 7 == 8", True),
        ("-width < +depth", True),
        ("width / 0 > 1", False),
        ("not width / 0 > 1", False),
        ("width / (depth - 4) > 1 or true", False),
        ("depth == 4 or width / 0 > 1", True),
        ("(-depth) ** 0.5 < 1", False),
        ("9 ** 9 ** 9 ** 9 > 1", False),
        ("2.0 ** 5000 > 1", False),
        ("width ** -99999999 < 1", False),
    ],
)
def test_what_satisfies_a_constraint(text: str, is_so: bool) -> None:
    expression = parse(text)
    check(expression, KINDS)
    assert expression.holds(POINT) is is_so


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("width * hight <= 4", "hight is not a parameter of the space"),
        ("width * depth", "is not a comparison"),
        ("optimizer < 3", "may be text"),
        ("optimizer == 3", "they are never equal"),
        ("nesterov == 1", "they are never equal"),
        ("mixed < 3", "may be text"),
        ("width and depth", "may be a number"),
        ("width <=", "cannot be read"),
        ("lambda > 3", "cannot be read"),
        ("width = 3", "cannot be read"),
        ("", "cannot be read"),
        ("width\0 < 3", "cannot be read"),
        ("(" * 250 + "width" + ")" * 250 + " < 3", "cannot be read"),
        ("1or width < 3", "cannot be read"),
        ("width < " + "1 + " * 200 + "1", "is too long"),
        ("-" * 500 + "width < 1", "is too long"),
        ("width.real < 3", "holds width.real"),
        ("width[0] < 3", "holds width[0]"),
        ("open('x') < 3", "holds open('x')"),
        ("min(width) < 3", "min needs two values or more"),
        ("abs(*width) < 3", "holds *width"),
        ("max(width, depth, key=abs) < 3", "holds max("),
        ("(lambda: 1)() < 3", "holds (lambda: 1)()"),
        ("[w for w in width] < 3", "holds [w for w in width]"),
        ("(width := 3) < 4", "holds (width := 3)"),
        ("f'{width}' == 'a'", "holds f'{width}'"),
        ("width if depth else 3 < 1", "holds width if depth"),
        ("width is depth", "holds width is depth"),
        ("width in (3, 4)", "holds width in (3, 4)"),
        ("width & 1 == 1", "holds width & 1"),
        ("width < 1e999", "a number that is too large"),
        ("width < 3j", "holds 3j"),
        ("width == None", "holds None"),
        ("b'a' == optimizer", "holds b'a'"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(Misfit) as refused:
        check(parse(text), KINDS)
    assert problem in str(refused.value)
    assert refused.value.fix


PARTS = "width depth optimizer nesterov 1 0 2.5 'sgd' + - * / // % ** < == != and or not min ( ) ,"


@given(st.lists(st.sampled_from(PARTS.split()), max_size=20).map(" ".join) | st.text(max_size=40))
def test_any_text_is_refused_or_says_yes_or_no(text: str) -> None:
    try:
        expression = parse(text)
        check(expression, KINDS)
    except Misfit:
        return
    assert expression.holds(POINT) in (True, False)
    assert expression.names <= KINDS.keys()
