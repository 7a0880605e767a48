"""Curves as JSON: series of equal steps share one list of them, and points have few digits."""

from collections.abc import Iterable, Mapping

import msgspec

from services.metrics.core.charts import Curve


def encode(curves: Mapping[str, Curve], from_steps: Mapping[str, int]) -> dict[str, msgspec.Raw]:
    """The members `steps` and `series` of an answer, as JSON."""
    axes: dict[tuple[int, ...], int] = {}
    series = {}
    for name, curve in curves.items():
        is_exact = curve.lows is None
        series[name] = {
            "steps": axes.setdefault(curve.steps, len(axes)),
            "from_step": from_steps.get(name, 0),
            "values": curve.values if is_exact else _short(curve.values),
            "lows": None if curve.lows is None else _short(curve.lows),
            "highs": None if curve.highs is None else _short(curve.highs),
            "not_finite": curve.not_finite,
        }
    return {
        "steps": msgspec.Raw(msgspec.json.encode(list(axes))),
        "series": msgspec.Raw(msgspec.json.encode(series)),
    }


def _short(values: Iterable[float | None]) -> msgspec.Raw:
    """Six digits are more than a chart can show, and a third of the bytes; counters are whole."""
    texts = ["null" if value is None else _text(value) for value in values]
    return msgspec.Raw(f"[{','.join(texts)}]".encode())


def _text(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1_000_000 else f"{round(value):.15g}"
