"""Routes about the platform as a whole: nodes, checkpoints, money, parked records, sign-in."""

import secrets
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from drivetrain_schemas.base import Strict
from drivetrain_schemas.ids import CheckpointId
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.topics import TOPICS
from services.gateway import commands, login_codes, parked_queries, queries
from services.gateway.backends import PartUnavailable
from services.gateway.context import CallerDep, Gateway, GatewayDep
from services.gateway.core import sessions
from services.gateway.rest import models, views
from services.gateway.rest.jobs import IdempotencyKey, Limit
from services.gateway.rest.places import place_text, read_place
from services.gateway.rest.problems import Problem, answers, invalid, not_found
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1", tags=["platform"])

MAX_COST_ROWS = 500
ParkedId = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]+$")]


class EstimateJob(Strict):
    """What would this job cost if it held its slots so long?"""

    spec: JobSpec
    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)]


@router.get("/nodes", responses=answers())
async def nodes(gateway: GatewayDep, caller: CallerDep) -> models.NodeList:
    """Every node with its slots and who holds them."""
    return models.NodeList(nodes=await find_nodes(gateway))


@router.post(
    "/checkpoints/{checkpoint_id}/pin",
    status_code=202,
    responses=answers(400, 404, 409, 413, 415, 422),
)
async def pin(
    checkpoint_id: CheckpointId,
    gateway: GatewayDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> models.Accepted:
    """Keep this checkpoint whatever retention says."""
    async with gateway.platform.database.connection() as connection:
        row = await queries.checkpoints.find(connection, caller.tenant_id, checkpoint_id)
    if row is None:
        raise not_found("checkpoint", checkpoint_id)
    is_confirmed = await commands.pin_checkpoint(gateway, caller.tenant_id, row, idempotency_key)
    return models.Accepted(is_confirmed=is_confirmed)


@router.post(
    "/estimates", response_model=models.Estimate, responses=answers(400, 404, 413, 415, 422)
)
async def estimate(body: EstimateJob, gateway: GatewayDep, caller: CallerDep) -> Any:
    """At the price that holds now, before anything is submitted."""
    resources = body.spec.resources
    device_type = resources.device_type
    if device_type is None:
        async with gateway.platform.database.connection() as connection:
            device_type = await queries.nodes.device_type_of_pool(connection, resources.pool)
    if device_type is None:
        raise invalid(
            "spec.resources.pool",
            f"the pool {resources.pool!r} has no nodes, so its price is not known",
            "name a pool of GET /v1/nodes, or a device_type",
        )
    return await gateway.backends.get(
        "cost",
        "/estimate",
        {
            "pool": resources.pool,
            "device_type": device_type,
            "devices": resources.devices,
            "seconds": body.seconds,
        },
    )


@router.get("/cost", responses=answers(422))
async def cost(
    gateway: GatewayDep, caller: CallerDep, by: Literal["job"] = "job"
) -> models.CostReport:
    """What was charged in all, the jobs charged last, and the spend with what accrues now."""
    async with gateway.platform.database.connection() as connection:
        rows = await queries.costs.by_job(connection, caller.tenant_id, MAX_COST_ROWS)
        total, num_jobs = await queries.costs.total(connection, caller.tenant_id)
    try:
        answer = await gateway.backends.get("cost", f"/spend/tenants/{caller.tenant_id}")
        spend = models.Spend.model_validate(answer)
    except PartUnavailable:
        spend = None
    items = [
        models.CostOfJob(
            job_id=row["job_id"], name=row["name"], charged_micro_usd=row["charged_micro_usd"]
        )
        for row in rows
    ]
    return models.CostReport(
        by=by, items=items, num_jobs=num_jobs, charged_micro_usd=total, spend=spend
    )


@router.get("/parked", responses=answers(422))
async def list_parked(
    gateway: GatewayDep,
    caller: CallerDep,
    limit: Limit = 50,
    after: Annotated[str | None, Query(max_length=512)] = None,
) -> models.ParkedList:
    """Records that a service could not take, newest first."""
    place = read_place(after, 2)
    async with gateway.platform.database.connection() as connection:
        rows = await parked_queries.parked(
            connection, (place[0], place[1][0]) if place else None, limit + 1
        )
    more = None
    if len(rows) > limit:
        more = place_text(rows[limit - 1]["parked_at"], rows[limit - 1]["parked_id"])
    return models.ParkedList(records=[views.parked_summary(row) for row in rows[:limit]], next=more)


@router.get("/parked/{parked_id}", responses=answers(404, 422))
async def get_parked(
    parked_id: ParkedId, gateway: GatewayDep, caller: CallerDep
) -> models.ParkedRecord:
    """With its original bytes."""
    return views.parked_record(await find_parked(gateway, parked_id))


@router.post(
    "/parked/{parked_id}/replay",
    status_code=202,
    responses=answers(400, 404, 409, 413, 415, 422),
)
async def replay(parked_id: ParkedId, gateway: GatewayDep, caller: CallerDep) -> models.Accepted:
    """Put the record back on its topic, with its own id: who handled it before drops it."""
    await replay_parked(gateway, parked_id)
    return models.Accepted(is_confirmed=True)


@router.post("/login-links", status_code=201, responses=answers(400, 413, 415))
async def login_link(gateway: GatewayDep, caller: CallerDep, request: Request) -> models.LoginLink:
    """A link that opens the pages in one browser, once, within ten minutes."""
    now = gateway.platform.clock.now()
    code, expires_at = await new_login_code(gateway, now)
    return models.LoginLink(url=f"{base_url(request)}/login?code={code}", expires_at=expires_at)


async def new_login_code(gateway: Gateway, now: datetime) -> tuple[str, datetime]:
    code = secrets.token_urlsafe(32)
    expires_at = now + sessions.CODE_LIFE
    async with gateway.platform.database.connection() as connection:
        await login_codes.remove_expired(connection, now)
        await login_codes.insert(connection, sessions.code_digest(code), expires_at)
    return code, expires_at


async def find_nodes(gateway: Gateway) -> list[models.Node]:
    async with gateway.platform.database.connection() as connection:
        rows = await queries.nodes.present(connection)
        held = await queries.nodes.held_slots(connection)
    return views.nodes(rows, held)


async def find_parked(gateway: Gateway, parked_id: str) -> dict[str, Any]:
    async with gateway.platform.database.connection() as connection:
        row = await parked_queries.record(connection, parked_id)
    if row is None:
        raise not_found("parked record", parked_id)
    return row


async def replay_parked(gateway: Gateway, parked_id: str) -> None:
    """Raises Problem where there is no such record, or where it cannot have come from."""
    row = await find_parked(gateway, parked_id)
    prefix = gateway.settings.topic_prefix
    known = {prefix + topic.name for topic in TOPICS if not topic.name.startswith("parked.")}
    if row["topic"] not in known:
        detail = f"it names no topic of ours to go back to ({row['topic'][:120]!r})"
        raise Problem(409, "cannot_be_replayed", detail)
    if row["omitted_bytes"] is not None:
        detail = f"it was too large to be kept ({row['omitted_bytes']:,} bytes)"
        raise Problem(409, "cannot_be_replayed", detail)
    await commands.replay(gateway, row)
