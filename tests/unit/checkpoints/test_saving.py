import pytest

from drivetrain_schemas.checkpoints import SaveFailure
from services.checkpoints.core.saving import Unsaved, is_news, overdue

FULL, MISSING, OVERDUE = SaveFailure.STORE_FULL, SaveFailure.RANK_MISSING, SaveFailure.OVERDUE
READ_ONLY = SaveFailure.STORE_READ_ONLY


@pytest.mark.parametrize(
    ("announced", "reason", "want"),
    [
        ([], OVERDUE, True),
        ([FULL], FULL, False),
        ([FULL], READ_ONLY, True),
        ([FULL, READ_ONLY], FULL, False),
        ([MISSING], FULL, True),
        ([FULL], MISSING, False),
        ([OVERDUE], MISSING, True),
        ([MISSING], MISSING, False),
        ([FULL], OVERDUE, False),
        ([OVERDUE], FULL, True),
    ],
)
def test_each_cause_is_announced_once_and_a_vaguer_one_never_after_it(
    announced: list[SaveFailure], reason: SaveFailure, want: bool
) -> None:
    assert is_news(announced, reason) is want


@pytest.mark.parametrize(
    ("unsaved", "every_seconds", "every_steps", "want"),
    [
        (Unsaved(420), 60.0, None, False),
        (Unsaved(421), 60.0, None, True),
        (Unsaved(7500), 3600.0, None, False),
        (Unsaved(301, 99), None, 50, False),
        (Unsaved(301, 100), None, 50, True),
        (Unsaved(300, 100_000), None, 50, False),
        (Unsaved(10**6, 10**6), None, None, False),
    ],
)
def test_a_checkpoint_is_overdue_much_later_than_due(
    unsaved: Unsaved, every_seconds: float | None, every_steps: int | None, want: bool
) -> None:
    assert (overdue(unsaved, every_seconds, every_steps) is not None) is want


@pytest.mark.parametrize(
    ("unsaved", "every_seconds", "every_steps", "want"),
    [
        (Unsaved(36_000), 5400.0, 9, "for 600 min; the job asks for one every 90 min"),
        (Unsaved(1_200), 90.0, None, "for 20 min; the job asks for one every 1.5 min"),
        (
            Unsaved(1_200, 75),
            None,
            25,
            "for 20 min and 75 steps; the job asks for one every 25 steps",
        ),
        (
            Unsaved(1_200, 75),
            3600.0,
            25,
            "for 20 min and 75 steps; the job asks for one every 25 steps",
        ),
    ],
)
def test_it_says_how_long_and_what_the_job_asks_for(
    unsaved: Unsaved, every_seconds: float | None, every_steps: int | None, want: str
) -> None:
    assert overdue(unsaved, every_seconds, every_steps) == f"no checkpoint {want}"
