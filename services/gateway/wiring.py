"""Puts the gateway together; the only place where its parts are constructed."""

from functools import partial

from services.gateway.app import http_app
from services.gateway.handlers import event_handlers, events_handler, stream_handlers
from services.gateway.live import Live
from services.gateway.model_age import ModelAge
from services.gateway.parked import PARKED_RULE
from services.gateway.parked_count import count_parked
from services.gateway.settings import GatewaySettings
from services.gateway.stored_code import tidy
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Service


def build(settings: GatewaySettings) -> Service:
    live = Live()
    model_age = ModelAge(lambda: live.announce("stale"))
    handle_batch = events_handler(live.wake)
    return Service(
        name="gateway",
        settings=settings,
        package="services.gateway",
        handlers=event_handlers(handle_batch),
        handle_batch=handle_batch,
        streams=stream_handlers(live.announce, live.wake, RunTokens(settings.run_token_key)),
        tasks=(live.follow, model_age.follow, count_parked, partial(tidy, model_age)),
        http=partial(http_app, live, model_age),
        http_guards_itself=True,
        retention=(PARKED_RULE,),
        is_projection=True,
    )
