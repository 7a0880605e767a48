"""Routes about the platform as a whole: nodes, checkpoints, money, sign-in."""

import secrets
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from drivetrain_schemas.base import Strict
from drivetrain_schemas.ids import CheckpointId
from drivetrain_schemas.jobs import JobSpec
from services.gateway import commands, login_codes, queries
from services.gateway.backends import PartUnavailable
from services.gateway.context import Caller, CallerDep, Gateway, GatewayDep
from services.gateway.core import sessions
from services.gateway.problem import invalid, not_found
from services.gateway.rest import models, views
from services.gateway.rest.days import Day
from services.gateway.rest.jobs import IdempotencyKey
from services.gateway.rest.problems import answers
from services.gateway.rest.requests import base_url

router = APIRouter(prefix="/v1", tags=["platform"])

MAX_COST_ROWS = 500


class EstimateJob(Strict):
    """The cost of this job if it held its slots for this long, and what jobs like it took."""

    spec: JobSpec
    seconds: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None


class OpenPage(Strict):
    """The page that a sign-in link shows."""

    path: Annotated[str, Field(pattern=sessions.PAGE_PATH, max_length=128)]


@router.get("/nodes", responses=answers())
async def nodes(gateway: GatewayDep, caller: CallerDep) -> models.NodeList:
    """Every node with its slots, and the caller's jobs that hold some."""
    return models.NodeList(nodes=await find_nodes(gateway, caller))


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
    """Keep this checkpoint: retention does not delete it."""
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
    """The cost at the current price, before anything is submitted: for the given seconds, and from
    the history of jobs with the same name, command or project."""
    resources = body.spec.resources
    device_type = resources.device_type
    if device_type is None:
        async with gateway.platform.database.connection() as connection:
            device_type = await queries.nodes.device_type_of_pool(connection, resources.pool)
    if device_type is None:
        raise invalid(
            "spec.resources.pool",
            f"the pool {resources.pool!r} has no nodes, so its price is unknown",
            "name a pool of GET /v1/nodes, or a device_type",
        )
    of = {"pool": resources.pool, "device_type": device_type}
    seconds = 1.0 if body.seconds is None else body.seconds
    price = await gateway.backends.get(
        "cost", "/estimate", {**of, "devices": resources.devices, "seconds": seconds}
    )
    spec = body.spec
    like = {"name": spec.name, "command": list(spec.command), "project": spec.project}
    path = f"/history/{caller.tenant_id}"
    history = await gateway.backends.ask("cost", path, {**like, **of})
    if body.seconds is None:
        if history["num_jobs"] == 0:
            raise invalid(
                "seconds",
                "there is no history: no job of this name, command or project has succeeded yet",
                "write for how many seconds its slots will be held",
            )
        price = {**price, "estimated_micro_usd": history["median_micro_usd"]}
    return {**price, "history": history}


@router.get("/cost", responses=answers(422))
async def cost(
    gateway: GatewayDep, caller: CallerDep, by: Literal["job"] = "job"
) -> models.CostReport:
    """The sum of all charges, the jobs charged last, and the spend including what accrues now."""
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


@router.get("/cost/pools", responses=answers(422))
async def pools(
    gateway: GatewayDep,
    caller: CallerDep,
    first: Day | None = None,
    last: Day | None = None,
) -> models.PoolReport:
    """Who had what of each pool, by day (UTC): by default the last seven. At most 92 days."""
    last = last or gateway.platform.clock.now().date()
    first = first or last - timedelta(days=6)
    answer = await gateway.backends.get(
        "cost",
        f"/pools/{caller.tenant_id}",
        {"first": first.isoformat(), "last": last.isoformat()},
    )
    return models.PoolReport.model_validate(answer)


@router.get(
    "/cost/recommendations", response_model=models.RecommendationList, responses=answers(422)
)
async def recommendations(
    gateway: GatewayDep,
    caller: CallerDep,
    first: Day | None = None,
    last: Day | None = None,
) -> Any:
    """Where jobs could cost less, each with its evidence: by default of the last thirty days (UTC).

    At most 92 days. A job is looked at once its slots were released for some minutes.
    """
    last = last or gateway.platform.clock.now().date()
    first = first or last - timedelta(days=29)
    days = {"first": first.isoformat(), "last": last.isoformat()}
    return await gateway.backends.get("cost", f"/recommendations/{caller.tenant_id}", days)


@router.post("/login-links", status_code=201, responses=answers(400, 413, 415, 422))
async def login_link(
    gateway: GatewayDep, caller: CallerDep, request: Request, body: OpenPage | None = None
) -> models.LoginLink:
    """A link that signs one browser in, once, within ten minutes, and shows the page."""
    now = gateway.platform.clock.now()
    code, expires_at = await new_login_code(gateway, now)
    path = body.path if body else "/login"
    return models.LoginLink(url=f"{base_url(request)}{path}?code={code}", expires_at=expires_at)


async def new_login_code(gateway: Gateway, now: datetime) -> tuple[str, datetime]:
    code = secrets.token_urlsafe(sessions.CODE_BYTES)
    expires_at = now + sessions.CODE_LIFE
    async with gateway.platform.database.connection() as connection:
        await login_codes.remove_expired(connection, now)
        await login_codes.insert(connection, sessions.code_digest(code), expires_at)
    return code, expires_at


async def find_nodes(gateway: Gateway, caller: Caller) -> list[models.Node]:
    async with gateway.platform.database.connection() as connection:
        rows = await queries.nodes.present(connection)
        held = await queries.nodes.held_slots(connection, caller.tenant_id)
    return views.nodes(rows, held)
