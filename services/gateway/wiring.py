"""Puts the gateway together; the only place where its parts are constructed."""

from functools import partial

from services.gateway.handlers import projection_handlers
from services.gateway.live import Live
from services.gateway.rest.app import http_app
from services.gateway.settings import GatewaySettings
from services.gateway.streams import projection_streams
from services.runtime.service import Service


def build(settings: GatewaySettings) -> Service:
    live = Live()
    return Service(
        name="gateway",
        settings=settings,
        package="services.gateway",
        handlers=projection_handlers(live.wake),
        streams=projection_streams(live.announce, live.wake),
        tasks=(live.follow,),
        http=partial(http_app, live),
        http_guards_itself=True,
        is_projection=True,
    )
