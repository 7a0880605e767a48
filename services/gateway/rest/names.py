"""The route that finds ids: by name, or by the beginning of an id."""

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from services.gateway import queries
from services.gateway.context import CallerDep, GatewayDep
from services.gateway.rest import models
from services.gateway.rest.problems import answers

router = APIRouter(prefix="/v1", tags=["platform"])

MAX_FOUND = 10
_BEGINNING = re.compile("(?:job_|study_|ckpt_)?[a-z2-7]{1,26}")


@router.get("/ids", responses=answers(422))
async def ids(
    gateway: GatewayDep,
    caller: CallerDep,
    kind: Literal["job", "study", "checkpoint"],
    text: Annotated[str, Query(min_length=1, max_length=128)],
) -> models.IdList:
    """What `text` may mean: those with this name, the newest first, or whose id begins with it."""
    of_kind = queries.names.KINDS[kind]
    async with gateway.platform.database.connection() as connection:
        rows = await queries.names.by_name(connection, of_kind, caller.tenant_id, text, MAX_FOUND)
        if not rows and _BEGINNING.fullmatch(text):
            rows = await queries.names.by_beginning(
                connection, of_kind, caller.tenant_id, text, MAX_FOUND
            )
    return models.IdList(ids=[models.FoundId(**row) for row in rows])
