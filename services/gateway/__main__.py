"""`python -m services.gateway`."""

from services.gateway.settings import GatewaySettings
from services.gateway.wiring import build
from services.runtime.service import main

main(GatewaySettings, build)
