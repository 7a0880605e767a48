"""`python -m services.scheduler`."""

from services.runtime.service import main
from services.scheduler.settings import SchedulerSettings
from services.scheduler.wiring import build

if __name__ == "__main__":
    main(SchedulerSettings, build)
