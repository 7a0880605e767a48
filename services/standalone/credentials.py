"""The secrets of one data directory: made at its first start, readable by the owner only.

Kafka (SASL), Postgres (scram-sha-256), the gateway's API (bearer token) and its cookies each get
their own. They stay the same over restarts: Kafka and Postgres keep theirs in their data.
"""

import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from services.standalone.files import write_private

NUM_BYTES = 32


@dataclass(frozen=True, slots=True)
class Credentials:
    kafka_username: str
    kafka_password: str
    postgres_password: str
    api_token: str
    cookie_secret: str

    @property
    def read_token(self) -> str:
        """For the services' read ports. Derived, so that the file of an older release is enough."""
        return hmac.digest(self.api_token.encode(), b"read ports", "sha256").hex()


def load_or_create(path: Path) -> Credentials:
    try:
        return Credentials(**json.loads(path.read_text()))
    except FileNotFoundError:
        made = Credentials("drivetrain", *(secrets.token_urlsafe(NUM_BYTES) for _ in range(4)))
        write_private(path, json.dumps(asdict(made), indent=2) + "\n")
        return made
    except (ValueError, TypeError) as error:
        raise RuntimeError(
            f"{path} is damaged ({error}); restore it, or move the whole data directory away."
        ) from error
