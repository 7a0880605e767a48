"""`python -m services.metrics`."""

from services.metrics.settings import MetricsSettings
from services.metrics.wiring import build
from services.runtime.service import main

main(MetricsSettings, build)
