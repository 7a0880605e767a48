"""Settings of the cost service."""

from pathlib import Path

from pydantic import Field

from services.runtime.settings import Settings


class CostSettings(Settings):
    price_book: Path = Path(__file__).parent / "prices.yaml"
    tenant_classes: dict[str, str] = Field(
        default={},
        description="class of each tenant in the measure of spend per hour, as JSON; "
        "the others are `default`",
    )
