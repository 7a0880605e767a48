"""Templates to pages. Everything is escaped; an undefined name in a template is an error."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from drivetrain_schemas.registry import all_kinds
from drivetrain_schemas.units import short_money
from services.gateway.context import Gateway
from services.gateway.core import formats
from services.gateway.core.shown_metrics import few
from services.gateway.core.study_outcome import num_ended, outcome
from services.gateway.disk import disk_warning
from services.gateway.model_age import STALE_SECONDS

# Events of the stream that are not in the timeline.
HINTS = ("submitted", "parked", "stale")
FOLDER = Path(__file__).parent


def _time(moment: datetime | None, *, relative: bool = True) -> Markup:
    """A time that the page's script shows in the reader's own zone."""
    if moment is None:
        return Markup("")
    utc = moment.astimezone(UTC)
    machine = escape(utc.isoformat().replace("+00:00", "Z"))
    people = escape(f"{utc:%Y-%m-%d %H:%M:%S} UTC")
    mark = " data-relative" if relative else ""
    return Markup(f'<time datetime="{machine}"{mark}>{people}</time>')


def _short(subject_id: str) -> str:
    """job_abcdefgh... -> abcdefgh, which is enough to distinguish the ids of one page."""
    return subject_id.rpartition("_")[2][:8]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=formats.size,
        money=short_money,
        duration=formats.duration,
        number=formats.number,
        few=few,
        short=_short,
        time=_time,
    )
    types = [kind.kind.type for kind in all_kinds().values()]
    stream_types = " ".join((*types, *HINTS))
    environment.globals.update(
        count=formats.count, num_ended=num_ended, outcome=outcome, stream_types=stream_types
    )
    return environment


_ENVIRONMENT = _environment()


def page(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """The template as a page."""
    template = _ENVIRONMENT.get_template(name)
    gateway: Gateway = request.app.state.gateway
    now = gateway.platform.clock.now()
    age = gateway.model_age.seconds(now)
    values = {
        "path": request.url.path,
        "position": "",
        "job_id": "",
        "num_alerts": 0,
        "num_parked": 0,
        "as_of": now - timedelta(seconds=age) if age >= STALE_SECONDS else None,
        "lag_records": gateway.model_age.lag_records,
        "disk_warning": disk_warning(gateway),
        **values,
    }
    return HTMLResponse(template.render(values), status)


def stream_position(stream: tuple[str, int]) -> str:
    """The stream's position before a page's reads; the page's script continues from there."""
    return f"{stream[0]}.{stream[1]}"
