"""Builds the search service."""

from services.hpo import clock
from services.hpo.api import read_api
from services.hpo.handlers import HANDLERS, REFUSALS, handle_batch
from services.hpo.retention import RULES
from services.hpo.settings import HpoSettings
from services.runtime.service import Service


def build(settings: HpoSettings) -> Service:
    return Service(
        name="hpo",
        settings=settings,
        package="services.hpo",
        handlers=HANDLERS,
        refusals=REFUSALS,
        handle_batch=handle_batch,
        tasks=(clock.watch,),
        http=read_api,
        retention=RULES,
    )
