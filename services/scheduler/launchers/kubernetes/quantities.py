"""Quantities as Kubernetes writes them: "500m", "1.5", "16Gi", "1e3"."""

import math
import re
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGTPE", start=1)},
    **{name + "i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", start=1)},
}


def parse(text: str) -> Decimal:
    """Raises ValueError."""
    matched = _QUANTITY.fullmatch(text)
    if matched is None or matched[2] not in _FACTORS:
        raise ValueError(f'{text!r} is no quantity: write for example "2", "500m" or "4Gi"')
    return Decimal(matched[1]) * _FACTORS[matched[2]]


def times(text: str, factor: int) -> str:
    """`factor` times the quantity: in whole units, or in thousandths where it has a fraction."""
    total = parse(text) * factor
    if total == total.to_integral_value():
        return str(int(total))
    return f"{math.ceil(total * 1000)}m"
