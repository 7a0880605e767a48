"""Draws the panels of docs/guides/what-to-watch.md without Grafana, from a running Prometheus.

`python -m deploy.dashboards.picture http://127.0.0.1:9090 SECONDS FILE.svg`: of the last seconds.
"""

import itertools
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import httpx

BOARDS = Path(__file__).parent / "json"
PANELS = (
    ("services", "Objectives: share of errors"),
    ("services", "Delay of events (99 %)"),
    ("services", "Consumer lag, time"),
    ("services", "Oldest event not in Kafka"),
    ("services", "Parked records"),
    ("fleet", "Devices by state"),
    ("fleet", "Jobs that wait"),
    ("job", "Recovery (90 %), by phase"),
    ("checkpoints", "Runs without new checkpoints"),
    ("money", "Spend per hour by class"),
)
COLUMNS = 2
WIDTH, HEIGHT = 480, 170
PLOT = (44, 28, WIDTH - 56, 84)  # x, y, width, height
MAX_LEGEND = 6
COLORS = ("#3274d9", "#e0752d", "#37872d", "#b0437b", "#8f6ed5", "#c4162a", "#1f9ea3", "#8a6d00")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Curves:
    """A panel as it is drawn: points by legend."""

    title: str
    unit: str
    points: Mapping[str, Points]


def svg(panels: Sequence[Curves], start: float, end: float) -> str:
    """One picture of all panels, in columns."""
    rows = math.ceil(len(panels) / COLUMNS)
    places = itertools.product(range(rows), range(COLUMNS))
    drawn = [
        f'<g transform="translate({column * WIDTH},{row * HEIGHT})">{_panel(panel, start, end)}</g>'
        for (row, column), panel in zip(places, panels, strict=False)
    ]
    size = f'width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _panel(panel: Curves, start: float, end: float) -> str:
    x, y, width, height = PLOT
    right = x + width
    top = max((value for points in panel.points.values() for _, value in points), default=0) or 1.0

    def at(moment: float, value: float) -> str:
        share = (moment - start) / (end - start)
        return f"{x + share * width:.1f},{y + height - value / top * height:.1f}"

    lines = [
        f'<text x="{x}" y="18" font-size="13" font-weight="bold">{escape(panel.title)}</text>',
        f'<text x="{x - 4}" y="{y + 8}" font-size="10" text-anchor="end">{top:.3g}</text>',
        f'<text x="{x - 4}" y="{y + height}" font-size="10" text-anchor="end">0</text>',
        f'<text x="{right}" y="18" font-size="10" text-anchor="end">{escape(panel.unit)}</text>',
        f'<path d="M{x},{y}V{y + height}H{right}" fill="none" stroke="#999"/>',
    ]
    for place, (legend, points) in enumerate(panel.points.items()):
        color = COLORS[place % len(COLORS)]
        path = " ".join(at(*point) for point in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        if place < MAX_LEGEND:
            column, row = place % 2, place // 2
            left, below = x + column * (width // 2), y + height + 14 + 12 * row
            text = f'<text x="{left + 12}" y="{below}" font-size="10">{escape(legend[:38])}</text>'
            lines.append(
                f'<rect x="{left}" y="{below - 5}" width="8" height="3" fill="{color}"/>{text}'
            )
    return "".join(lines)


def read(url: str, board: str, title: str, start: float, end: float) -> Curves:
    """The panel's queries over this time; charts of a dashboard's variables with their defaults."""
    panels = json.loads((BOARDS / f"{board}.json").read_text())["panels"]
    (panel,) = [it for it in panels if it["title"] == title]
    points: dict[str, Points] = {}
    for target in panel["targets"]:
        query = re.sub(r"\$\w+", ".*", target["expr"].replace("$__rate_interval", "1m"))
        window = {"start": f"{start}", "end": f"{end}", "step": f"{max(1.0, (end - start) / 240)}"}
        answer = httpx.get(
            f"{url}/api/v1/query_range", params={"query": query, **window}, trust_env=False
        )
        answer.raise_for_status()
        for series in answer.json()["data"]["result"]:
            values = [(float(at), float(value)) for at, value in series["values"]]
            finite = [point for point in values if math.isfinite(point[1])]
            if finite:
                points[_legend(target["legendFormat"], series["metric"])] = finite
    return Curves(title, panel["fieldConfig"]["defaults"]["unit"], points)


def _legend(pattern: str, labels: Mapping[str, Any]) -> str:
    if pattern == "__auto":
        return " ".join(map(str, labels.values())) or "value"
    return re.sub(r"\{\{(\w+)\}\}", lambda name: str(labels.get(name[1], "")), pattern)


def main(url: str, seconds: float, path: Path) -> None:
    end = time.time()
    start = end - seconds
    panels = [read(url, board, title, start, end) for board, title in PANELS]
    path.write_text(svg(panels, start, end))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python -m deploy.dashboards.picture URL SECONDS FILE.svg")
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
