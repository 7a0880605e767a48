"""Stacked bars: heights in proportion, the highest as high as the picture."""

from services.gateway.core.bars import BAR, HEIGHT, STEP, Part, Piece, stacked


def test_bars_stand_beside_each_other_and_grow_from_the_bottom() -> None:
    found = stacked([[Part("used", 3, "a"), Part("idle", 1, "b")], [Part("used", 2, "c")]])
    assert found.pieces == (
        Piece("used", 0, HEIGHT / 4, HEIGHT * 3 / 4, "a"),
        Piece("idle", 0, 0.0, HEIGHT / 4, "b"),
        Piece("used", STEP, HEIGHT / 2, HEIGHT / 2, "c"),
    )
    assert (found.width, found.most) == (STEP + BAR, 4)


def test_what_is_not_above_zero_is_not_drawn() -> None:
    found = stacked([[Part("idle", -2, "a"), Part("used", 4, "b"), Part("lost", 0, "c")], []])
    assert [piece.label for piece in found.pieces] == ["b"]
    assert found.most == 4
    assert stacked([]).width == 1


def test_a_picture_of_nothing_above_zero_has_its_width_and_no_bar() -> None:
    found = stacked([[Part("idle", 0, "a")], [Part("idle", -1, "b")]])
    assert (found.pieces, found.most, found.width) == ((), 0, STEP + BAR)
