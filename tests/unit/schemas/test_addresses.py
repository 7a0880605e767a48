"""Addresses of data: what `urllib` reads, and what it raises at."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.addresses import read_address
from drivetrain_schemas.jobs import JobSpec


@given(st.from_regex("[a-z0-9+]+://[!-~]+", fullmatch=True))
def test_every_address_that_a_job_may_name_is_read_as_urllib_reads_it(text: str) -> None:
    JobSpec.model_validate({"name": "t", "command": ["true"], "data": text})
    scheme, host, path = read_address(text)
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    if parts.scheme:  # otherwise it is none to urllib: it begins with a digit
        assert (scheme, host, path) == (parts.scheme, parts.netloc.rpartition("@")[2], parts.path)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("s3://user:hidden@sets/v3?X-Amz-Signature=hidden#x", ("s3", "sets", "/v3")),
        ("s3://[sets/v3", ("s3", "[sets", "/v3")),
        ("s3://sets?x/y", ("s3", "sets", "")),
        ("/data/sets", ("", "", "/data/sets")),
    ],
)
def test_secrets_are_not_read(text: str, read: tuple[str, str, str]) -> None:
    assert read_address(text) == read
