"""Settings of the cost service."""

from pathlib import Path

from services.runtime.settings import Settings


class CostSettings(Settings):
    price_book: Path = Path(__file__).parent / "prices.yaml"
