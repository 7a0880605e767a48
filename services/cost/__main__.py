"""`python -m services.cost`."""

from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime.service import main

main(CostSettings, build)
