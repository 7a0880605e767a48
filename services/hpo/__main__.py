"""`python -m services.hpo`."""

from services.hpo.settings import HpoSettings
from services.hpo.wiring import build
from services.runtime.service import main

main(HpoSettings, build)
