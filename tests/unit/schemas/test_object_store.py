"""What is wrong with an object store, from what it answered."""

import pytest

from drivetrain_schemas.object_store import StoreFailure, failure_of_code


@pytest.mark.parametrize(
    ("code", "status", "failure"),
    [
        ("AccessDenied", 403, StoreFailure.READ_ONLY),
        ("InvalidAccessKeyId", 403, StoreFailure.ERROR),
        ("SignatureDoesNotMatch", 403, StoreFailure.ERROR),
        ("RequestTimeTooSkewed", 403, StoreFailure.ERROR),
        ("NoSuchBucket", 404, StoreFailure.UNAVAILABLE),
    ],
)
def test_a_store_is_not_called_read_only_for_a_wrong_login_or_clock(
    code: str, status: int, failure: StoreFailure
) -> None:
    assert failure_of_code(code, status) is failure
