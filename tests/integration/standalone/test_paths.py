"""A data directory may have any path: services read the URL as standalone means it."""

from pathlib import Path

import pytest

from services.runtime.stores import initialise, open_object_store
from tests.unit.standalone.test_parts import make_plan


@pytest.mark.parametrize("name", ["plain", "two words", "ü", "100%25 #1?"])
async def test_services_open_the_object_store_at_the_directory_of_standalone(
    tmp_path: Path, name: str
) -> None:
    plan = make_plan(tmp_path / name)
    plan.home.create()
    await initialise(plan.object_store_url)
    store = open_object_store(plan.object_store_url)
    await store.put("code/example", b"bytes")
    assert (plan.home.objects / "code" / "example").read_bytes() == b"bytes"
