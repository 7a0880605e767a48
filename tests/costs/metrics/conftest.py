"""The metrics service on a schema of its own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that goes to a thread is done at once, where it is counted."""

    async def at_once(work: Callable[..., Any], *given: Any) -> Any:
        return work(*given)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
