"""The secrets of one data directory: created at its first start, readable by the owner only.

Each service, the pods and the clients have a Kafka user of their own, each service and the readers
a Postgres role; the administrators, the gateway's API (bearer token) and its cookies have their
own. They stay the same across restarts. Secrets that the file of an older release lacks are added
to it.
"""

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drivetrain_schemas.access import ACCESS
from drivetrain_schemas.topics import SERVICES
from services.standalone.files import write_private
from services.standalone.roles import READER

NUM_BYTES = 32
ADMINISTRATOR = "drivetrain"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`kafka_username` is the administrator, as is the Postgres superuser of the same name."""

    kafka_username: str
    kafka_password: str
    postgres_password: str
    api_token: str
    cookie_secret: str
    kafka_users: Mapping[str, str] = field(default_factory=dict)
    """Password by user: one for each row of the access table."""
    postgres_roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def read_token(self) -> str:
        """For the services' read ports. Derived, so that the file of an older release is enough."""
        return hmac.digest(self.api_token.encode(), b"read ports", "sha256").hex()

    @property
    def run_token_key(self) -> str:
        """For services: signs and checks the reports of pods."""
        return hmac.digest(self.api_token.encode(), b"run tokens", "sha256").hex()


def load_or_create(path: Path) -> Credentials:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        found = {}
    except ValueError as error:
        raise _damaged(path, error) from error
    try:
        credentials = _completed(found)
    except (ValueError, TypeError) as error:
        raise _damaged(path, error) from error
    if asdict(credentials) != found:
        write_private(path, json.dumps(asdict(credentials), indent=2) + "\n")
    return credentials


def _completed(found: dict[str, Any]) -> Credentials:
    if found:
        credentials = Credentials(**found)
    else:
        credentials = Credentials(ADMINISTRATOR, _secret(), _secret(), _secret(), _secret())
    users, roles = dict(credentials.kafka_users), dict(credentials.postgres_roles)
    return Credentials(
        **{
            **asdict(credentials),
            "kafka_users": {name: users.get(name) or _secret() for name in ACCESS},
            "postgres_roles": {name: roles.get(name) or _secret() for name in (*SERVICES, READER)},
        }
    )


def _secret() -> str:
    return secrets.token_urlsafe(NUM_BYTES)


def _damaged(path: Path, error: Exception) -> RuntimeError:
    return RuntimeError(
        f"{path} is damaged ({error}); restore it, or move the whole data directory elsewhere."
    )
