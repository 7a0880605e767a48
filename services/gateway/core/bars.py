"""Stacked bars as rectangles, for a page that draws them without a script."""

from collections.abc import Sequence
from dataclasses import dataclass

BAR, STEP, HEIGHT = 16, 20, 120


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its style, its amount, and what is told of it."""

    style: str
    amount: int
    label: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle of the picture; `y` grows downwards."""

    style: str
    x: int
    y: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`most`: the amount of the highest bar."""

    width: int
    most: int
    pieces: tuple[Piece, ...]


def stacked(bars: Sequence[Sequence[Part]]) -> Picture:
    """The parts of each bar from the bottom up; the highest bar is as high as the picture."""
    most = max((sum(part.amount for part in bar if part.amount > 0) for bar in bars), default=0)
    pieces = []
    for number, bar in enumerate(bars):
        y = float(HEIGHT)
        for part in bar:
            if part.amount <= 0:
                continue
            height = HEIGHT * part.amount / most
            y -= height
            x = number * STEP
            pieces.append(Piece(part.style, x, round(y, 2), round(height, 2), part.label))
    return Picture(max(1, len(bars) * STEP - (STEP - BAR)), most, tuple(pieces))
