"""The days that a report is asked for, as parameters of the read API."""

from datetime import date, timedelta

from fastapi import HTTPException


def check_days(first: date, last: date, max_days: int, of: str = "") -> None:
    """Raises HTTPException 422 unless `last` is `first` or later, and they are `max_days` at most.

    `of`: which reports this is about, where others have another limit.
    """
    if not timedelta() <= last - first < timedelta(days=max_days):
        raise HTTPException(422, f"last: {of}write a day from first to {max_days - 1} days later")
