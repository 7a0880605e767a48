"""Alerts as the API shows them: with the silence that they are under, and what can be done."""

from services.gateway.core.alert_hints import hint
from services.gateway.core.silences import InForce, silence_of
from services.gateway.queries.rows import Row
from services.gateway.rest import models


def alert(row: Row, silences: InForce, project: str | None) -> models.Alert:
    """`silences`: those of the tenant in force."""
    silence = silence_of(silences, row["alert"], row["job_id"], project)
    return models.Alert.model_validate({**row, "silence": silence})


def listed_alert(row: Row, silences: InForce, base_url: str) -> models.ListedAlert:
    return models.ListedAlert(
        **alert(row, silences, row["project"]).model_dump(),
        **{name: row[name] for name in ("job_id", "job_name", "project")},
        job_url=f"{base_url}/jobs/{row['job_id']}",
        state="open" if row["is_open"] else "ended",
        ended_at=None if row["is_open"] else row["ended_at"],
        hint=hint(row["alert"]),
    )
