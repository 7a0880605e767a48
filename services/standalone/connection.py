"""How people and tools connect to the running platform: `connection.json` and the login link.

In: the plan. Out: a file that only its owner may read (the command line client finds it there), and
a link, made by the gateway, that opens the pages once in one browser.
"""

import json
import urllib.request
from dataclasses import asdict
from pathlib import Path

from drivetrain_schemas.access import CLIENT
from services.standalone.files import write_private
from services.standalone.parts import Plan
from services.standalone.roles import READER


def connection_text(plan: Plan) -> str:
    content = {
        "gateway_url": plan.gateway_url,
        "token": plan.credentials.api_token,
        # Commands may be written and events read; tables may be read.
        "kafka": asdict(plan.kafka_connection(CLIENT)),
        "postgres_dsn": plan.postgres_dsn(READER),
        "object_store_url": plan.object_store_url,
        "home": str(plan.home.root),
    }
    return json.dumps(content, indent=2) + "\n"


def keep_connection(file: Path, text: str) -> None:
    """Write it again where it was deleted or damaged: without it nobody finds the platform."""
    try:
        is_whole = file.read_bytes() == text.encode()
    except FileNotFoundError:
        is_whole = False
    if not is_whole:
        write_private(file, text)


def login_link(plan: Plan) -> str:
    """Requested from the gateway (blocking); raises OSError, ValueError or KeyError."""
    request = urllib.request.Request(
        f"{plan.gateway_url}/v1/login-links",
        method="POST",
        headers={"Authorization": f"Bearer {plan.credentials.api_token}"},
    )
    # Loopback must never go through a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=5) as answer:
        url = str(json.load(answer)["url"])
    return url if url.startswith("http") else plan.gateway_url + url
