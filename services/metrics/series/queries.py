"""The queries of the read API and their bounds."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from drivetrain_schemas.base import Misfit, UtcTime
from drivetrain_schemas.ids import JobId
from drivetrain_schemas.units import Attempt, Rank, Step
from services.metrics.core.downsampling import MIN_POINTS
from services.metrics.core.log_levels import NONE, Level
from services.metrics.core.log_search import Wanted

LAST_STEP = 2**53
MAX_SERIES = 50
MAX_NAMES_CHARACTERS = 8192
MAX_LINES = 5000
MAX_SEARCH_CHARACTERS = 200
MAX_PAGE_OF_SERIES = 500
MAX_PAGE_OF_MEDIA = 1000
MAX_PAGE_OF_RANKS = 128
MAX_WINDOWS = 240


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: JobId


SearchText = Annotated[str, Field(max_length=128)]


class SeriesQuery(Query):
    rank: Rank = 0
    search: SearchText = ""
    after: SearchText = ""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_OF_SERIES)] = 200
    system: bool = False


class WindowsQuery(Query):
    """The newest windows; `after`: only those that began later, in seconds since 1970."""

    after: Annotated[int, Field(ge=0, le=LAST_STEP)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_WINDOWS)] = 60


class SystemQuery(Query):
    from_rank: Rank = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_OF_RANKS)] = 32


def _list_of_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > MAX_SERIES or len(text) > MAX_NAMES_CHARACTERS:
        raise Misfit("names too many series", fix=f"name at most {MAX_SERIES}")
    return names


Names = Annotated[tuple[str, ...], BeforeValidator(_list_of_names)]


class SamplesQuery(Query):
    """`name` is repeated, for names with commas; it goes before `names`.

    `system`: without names, what the pods say of themselves instead of what the job logged.
    """

    name: Annotated[tuple[SearchText, ...], Field(max_length=MAX_SERIES)] = ()
    names: Names | None = None
    system: bool = False
    rank: Rank = 0
    attempt: Attempt | None = None
    from_step: Step = 0
    to_step: Step = LAST_STEP
    max_points: Annotated[int, Field(ge=MIN_POINTS, le=100_000)] = 1000


class ChartQuery(Query):
    """`after`: what the last answer gave as `next`."""

    name: Annotated[tuple[SearchText, ...], Field(min_length=1, max_length=MAX_SERIES)]
    rank: Rank = 0
    attempt: Attempt | None = None
    from_step: Step = 0
    to_step: Step = LAST_STEP
    max_points: Annotated[int, Field(ge=16, le=2000)] = 500
    after: Annotated[str, Field(max_length=80)] = ""


Position = Annotated[int, Field(ge=0, le=2**53)]


class LogsQuery(Query):
    """`after`: `limit` lines forwards from a position; `tail`: the last ones, of those before
    `before` where it is given. `search`: a part of the line, in any case; `level`: this or higher;
    `since` and `until`: when the lines arrived.
    """

    rank: Rank | None = None
    attempt: Attempt | None = None
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    search: Annotated[str, Field(max_length=MAX_SEARCH_CHARACTERS)] = ""
    since: UtcTime | None = None
    until: UtcTime | None = None
    after: Position | None = None
    before: Position | None = None
    tail: Annotated[int, Field(ge=1, le=MAX_LINES)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LINES)] = 1000

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            rank=self.rank,
            attempt=self.attempt,
            level=Level[self.level.upper()] if self.level else NONE,
            text=self.search,
            since=None if self.since is None else self.since.timestamp(),
            until=None if self.until is None else self.until.timestamp(),
        )


class MediaQuery(Query):
    """Without a name: which names there are. `limit` is of names or of steps, the last ones."""

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    to_step: Step | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_OF_MEDIA)] = 500
