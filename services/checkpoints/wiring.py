"""Puts the checkpoints service together; the only place where its parts are constructed."""

from drivetrain_schemas.topics import REPORTS
from services.checkpoints.handlers import handlers
from services.checkpoints.reports import report_handler
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.worker import Worker
from services.runtime.run_tokens import RunTokens
from services.runtime.service import Platform, Service


def build(settings: CheckpointsSettings) -> Service:
    workers: list[Worker] = []

    async def work(platform: Platform) -> None:
        worker = Worker(platform.database, platform.object_store, settings)
        workers.append(worker)
        await worker.run()

    def wake() -> None:
        for worker in workers:
            worker.wake()

    return Service(
        name="checkpoints",
        settings=settings,
        package="services.checkpoints",
        handlers=handlers(wake),
        streams={REPORTS: report_handler(RunTokens(settings.run_token_key), wake)},
        tasks=(work,),
    )
