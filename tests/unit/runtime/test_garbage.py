"""A service leaves what it imported out of garbage collection: a full one halted it for 0.2 s."""

import gc
import sys
from types import SimpleNamespace

import pytest

from services.runtime import service
from services.runtime.settings import Settings


def test_what_is_imported_is_left_out_of_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["service", "unknown"])
    monkeypatch.setattr(service, "from_process", lambda _: SimpleNamespace(log_level="info"))
    monkeypatch.setattr(service.logs, "configure", lambda *_: None)
    gc.unfreeze()
    try:
        with pytest.raises(SystemExit):
            service.main(Settings, lambda _: SimpleNamespace(name="cost"))
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
