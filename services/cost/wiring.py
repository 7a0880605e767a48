"""Puts the cost service together; the only place where its parts are constructed."""

from drivetrain_schemas.topics import EVENTS_CHECKPOINTS
from services.cost import storage
from services.cost.api import read_api
from services.cost.budget_watch import BudgetWatch
from services.cost.budgets import REFUSALS
from services.cost.corrections import Corrections
from services.cost.handlers import batch_handler, handlers
from services.cost.pools import Sharing
from services.cost.price_file import read_price_book
from services.cost.retention import rules
from services.cost.settings import CostSettings
from services.cost.spending import SpendingTask
from services.runtime.service import Service


def build(settings: CostSettings) -> Service:
    book = read_price_book(settings.price_book)
    return Service(
        name="cost",
        settings=settings,
        package="services.cost",
        handlers=handlers(book),
        refusals=REFUSALS,
        handle_batch=batch_handler(book),
        streams={EVENTS_CHECKPOINTS: storage.take},
        tasks=(
            Corrections(book).run,
            BudgetWatch(book).run,
            Sharing(book).run,
            storage.StorageCharging(book.storage).run,
            SpendingTask(book, settings.tenant_classes).run,
        ),
        retention=rules(book.storage),
        http=lambda platform: read_api(platform, book),
    )
