"""The secrets of one data directory: created at its first start, readable by the owner only.

Each service, the pods and the clients have a Kafka user of their own, each service and the readers
a Postgres role; the administrators, the gateway's API (bearer token), its cookies, the services'
read ports and the tokens of runs have their own. Each is random, so none follows from another. They
stay the same across restarts. A user or a role that is new in the tables gets its own.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from drivetrain_schemas.access import ACCESS
from drivetrain_schemas.topics import SERVICES
from services.standalone.files import as_texts, write_private
from services.standalone.roles import READER

NUM_BYTES = 32
ADMINISTRATOR = "drivetrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`kafka_username` is the administrator, as is the Postgres superuser of the same name."""

    kafka_username: str
    kafka_password: str
    postgres_password: str
    api_token: str
    cookie_secret: str
    read_token: str
    """For the services' read ports."""
    run_token_key: str
    """For services: signs and checks the reports of pods."""
    kafka_users: Mapping[str, str] = field(default_factory=dict)
    """Password by user: one for each row of the access table."""
    postgres_roles: Mapping[str, str] = field(default_factory=dict)


def load_or_create(path: Path) -> Credentials:
    try:
        found = _checked(Credentials(**json.loads(path.read_text())))
        credentials = _completed(found)
    except FileNotFoundError:
        found, credentials = None, _completed(_created())
    except (ValueError, TypeError) as error:
        raise RuntimeError(
            f"{path} is damaged ({error}); restore it, or move the whole data directory elsewhere."
        ) from error
    if credentials != found:
        write_private(path, json.dumps(asdict(credentials), indent=2) + "\n")
    return credentials


def _checked(found: Credentials) -> Credentials:
    values = asdict(found)
    for name in ("kafka_users", "postgres_roles"):
        as_texts(values.pop(name))
    as_texts(values)
    return found


def _created() -> Credentials:
    return Credentials(
        kafka_username=ADMINISTRATOR,
        kafka_password=_secret(),
        postgres_password=_secret(),
        api_token=_secret(),
        cookie_secret=_secret(),
        read_token=_secret(),
        run_token_key=_secret(),
    )


def _completed(found: Credentials) -> Credentials:
    return replace(
        found,
        kafka_users=_one_each(ACCESS, found.kafka_users),
        postgres_roles=_one_each((*SERVICES, READER), found.postgres_roles),
    )


def _one_each(names: Iterable[str], found: Mapping[str, str]) -> dict[str, str]:
    known = dict(found)
    return {name: known.get(name) or _secret() for name in names}


def _secret() -> str:
    return secrets.token_urlsafe(NUM_BYTES)
