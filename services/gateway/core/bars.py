"""Slots over time as stacked bars with their axes, for a page that draws them without a script."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from services.gateway.core import formats

BAR, STEP, HEIGHT = 16, 20, 120
Step = Literal["hour", "day"]
LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_HOUR_MICROSECONDS = 3_600_000_000
_STRIDES = (1, 2, 3, 6, 12, 24, 48)  # bars from one time at the axis to the next


@dataclass(frozen=True, slots=True)
class Line:
    """A use or a holder, of all pools shown. `address`: the page about it, or ''."""

    name: str
    style: str
    slot_microseconds: Sequence[int]
    micro_usd: int = 0
    address: str = ""

    @property
    def total(self) -> int:
        return sum(self.slot_microseconds)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its style, its amount, and what is told of it."""

    style: str
    amount: float
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
class Mark:
    """A text at an axis; its place in percent of the picture, from the left or from the top."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`amounts` and `times`: what stands at the two axes."""

    width: int
    pieces: tuple[Piece, ...]
    amounts: tuple[Mark, ...]
    times: tuple[Mark, ...] = ()
    height: int = HEIGHT


def picture(
    starts_at: Sequence[datetime], lines: Sequence[Line], step: Step, now: datetime
) -> Picture:
    """A bar for each hour or day, as high as the slots that it had on average; of one that is not
    over, on average of what has passed of it."""
    length = LENGTHS[step]
    columns = []
    for number, moment in enumerate(starts_at):
        is_over = not moment <= now < moment + length
        passed = length if is_over else max(now - moment, timedelta(seconds=1))
        when = time_text(moment, step)
        columns.append(
            [
                Part(
                    line.style,
                    line.slot_microseconds[number] / (passed / timedelta(microseconds=1)),
                    f"{when}: {hours(line.slot_microseconds[number])} slot hours {line.name}"
                    + ("" if is_over else " so far"),
                )
                for line in lines
            ]
        )
    return stacked(columns, times(starts_at, step))


def stacked(bars: Sequence[Sequence[Part]], marks: tuple[Mark, ...] = ()) -> Picture:
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
    return Picture(max(1, len(bars) * STEP - (STEP - BAR)), tuple(pieces), amounts(most), marks)


def amounts(most: float) -> tuple[Mark, ...]:
    """Round amounts from 0 up to the highest bar's: three to five of them."""
    if most <= 0:
        return ()
    power = 10.0 ** math.floor(math.log10(most))
    step = power * next(size for size in (0.5, 1, 2) if most / power < 5 * size)
    return tuple(
        Mark(round(100 - 100 * number * step / most, 2), formats.number(number * step))
        for number in range(int(most / step + 1e-9) + 1)
    )


def times(starts_at: Sequence[datetime], step: Step) -> tuple[Mark, ...]:
    """The times of a few bars, at most six of a week of hours or a quarter of days."""
    stride = next((each for each in _STRIDES if len(starts_at) <= 6 * each), _STRIDES[-1])
    width = max(1, len(starts_at) * STEP - (STEP - BAR))
    texts = "day" if stride % 24 == 0 else step
    return tuple(
        Mark(round(100 * (number * STEP + BAR / 2) / width, 2), time_text(starts_at[number], texts))
        for number in range(0, len(starts_at), stride)
    )


def time_text(moment: date, step: Step) -> str:
    day = f"{moment:%b} {moment.day}"
    return day if step == "day" else f"{day}, {moment:%H}:00"


def hours(slot_microseconds: int) -> str:
    """With a digit behind the point; what is less than an hour has two that say something."""
    amount = slot_microseconds / _HOUR_MICROSECONDS
    is_plain = amount == 0 or abs(amount) >= 1
    return f"{amount:,.1f}" if is_plain else formats.number(float(f"{amount:.2g}"))
