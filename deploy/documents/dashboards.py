"""The dashboards of deploy/dashboards as JSON for Grafana."""

import json
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards.checkpoints import CHECKPOINTS
from deploy.dashboards.fleet import FLEET
from deploy.dashboards.job import JOB
from deploy.dashboards.money import MONEY
from deploy.dashboards.search import SEARCH
from deploy.dashboards.services import SERVICES

DIRECTORY = Path(__file__).resolve().parents[1] / "dashboards" / "json"
ALL: dict[str, Dashboard] = {
    "fleet": FLEET,
    "job": JOB,
    "services": SERVICES,
    "search": SEARCH,
    "checkpoints": CHECKPOINTS,
    "money": MONEY,
}


def documents() -> dict[Path, str]:
    return {DIRECTORY / f"{name}.json": text(board) for name, board in ALL.items()}


def text(board: Dashboard) -> str:
    return json.dumps(board.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
