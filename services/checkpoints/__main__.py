"""`python -m services.checkpoints`."""

from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.wiring import build
from services.runtime.service import main

main(CheckpointsSettings, build)
