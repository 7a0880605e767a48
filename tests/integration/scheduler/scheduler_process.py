"""The real scheduler service, started as a process, with the small shim of these tests."""

from services.runtime.service import main
from services.scheduler.settings import SchedulerSettings
from services.scheduler.wiring import build
from tests.integration.scheduler.pods import SHIM

if __name__ == "__main__":
    main(SchedulerSettings, lambda settings: build(settings, SHIM))
