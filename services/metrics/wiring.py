"""Builds the metrics service."""

import os
from functools import partial

from starlette.applications import Starlette

from drivetrain_schemas.topics import LOGS, METRICS, REPORTS, WINDOWS
from services.metrics.api import read_api
from services.metrics.cold.tiering import tier
from services.metrics.handlers import HANDLERS, take_reports
from services.metrics.lineage import sending as lineage
from services.metrics.lineage.writing import handlers as lineage_handlers
from services.metrics.logs.moving import move_logs
from services.metrics.media_retention import delete_media
from services.metrics.quotas import Quotas, Rates
from services.metrics.retention import rules
from services.metrics.series.rolling import roll
from services.metrics.settings import MetricsSettings
from services.metrics.silences.commands import REFUSALS
from services.metrics.streams import take_logs, take_samples
from services.metrics.webhooks import sending as webhooks
from services.metrics.webhooks.file import read_endpoints, read_networks, read_webhooks
from services.metrics.windows.process import run_windows
from services.metrics.windows.stored import take_windows
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Platform, Service


def build(settings: MetricsSettings) -> Service:
    def http(platform: Platform) -> Starlette:
        return read_api(platform.database, platform.object_store, settings)

    tokens = RunTokens(settings.run_token_key)
    hooks = read_webhooks(settings, os.environ)
    endpoints = read_endpoints(settings, os.environ)
    send = partial(webhooks.deliver, hooks, read_networks(settings))
    tell = partial(lineage.deliver, endpoints, read_networks(settings))
    samples = Quotas(
        Rates(settings.max_samples_per_second_of_run, settings.max_samples_per_second_of_tenant)
    )
    lines = Quotas(
        Rates(settings.max_log_bytes_per_second_of_run, settings.max_log_bytes_per_second_of_tenant)
    )
    media = Quotas(
        Rates(settings.max_media_per_second_of_run, settings.max_media_per_second_of_tenant)
    )
    return Service(
        name="metrics",
        settings=settings,
        package="services.metrics",
        handlers=lineage_handlers(endpoints, {**HANDLERS, **webhooks.handlers(hooks)}),
        refusals=REFUSALS,
        streams={
            METRICS: partial(take_samples, tokens, quotas=samples, of_media=media),
            LOGS: partial(take_logs, tokens, quotas=lines),
            WINDOWS: take_windows,
            REPORTS: partial(take_reports, tokens),
        },
        tasks=(roll, tier, move_logs, delete_media, run_windows, send, tell),
        http=http,
        retention=rules(settings),
    )
