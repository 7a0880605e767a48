import pytest

from drivetrain_schemas.checkpoints import SaveFailure
from services.checkpoints.core.saving import overdue_after, replaces

FULL, MISSING, OVERDUE = SaveFailure.STORE_FULL, SaveFailure.RANK_MISSING, SaveFailure.OVERDUE


@pytest.mark.parametrize(
    ("known", "reported", "want"),
    [
        ((FULL, 10), (FULL, 20), False),
        ((FULL, 10), (SaveFailure.STORE_READ_ONLY, 20), True),
        ((MISSING, 10), (FULL, 10), True),
        ((FULL, 10), (MISSING, 10), False),
        ((FULL, 10), (MISSING, 20), True),
        ((FULL, 10), (OVERDUE, None), False),
        ((OVERDUE, None), (FULL, 10), True),
    ],
)
def test_a_failure_replaces_another_where_it_says_more(
    known: tuple[SaveFailure, int | None], reported: tuple[SaveFailure, int | None], want: bool
) -> None:
    assert replaces(*known, *reported) is want


def test_overdue_is_much_later_than_due() -> None:
    assert overdue_after(60.0) == 420.0
    assert overdue_after(3600.0) == 7500.0
