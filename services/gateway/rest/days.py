"""Days and months in the parameters of routes: those that reports may be about.

A day of the year 1 or 9999 has no day before or after it, so none of these is let in.
"""

from datetime import date
from typing import Annotated

from pydantic import AfterValidator

from drivetrain_schemas.base import Misfit
from drivetrain_schemas.text import WORDS

FIRST, LAST = date(2000, 1, 1), date(2099, 12, 31)
# [0-9] and not \d, which takes digits of every script.
MONTH = r"^20[0-9]{2}-(0[1-9]|1[0-2])$"
WORDS[MONTH] = "a month such as 2026-02"


def _is_possible(day: date) -> date:
    if not FIRST <= day <= LAST:
        raise Misfit(f"{day} is no day of a report", fix=f"write a day from {FIRST} to {LAST}")
    return day


Day = Annotated[date, AfterValidator(_is_possible)]
