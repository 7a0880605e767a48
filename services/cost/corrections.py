"""A task of the service: at each start, unpriced usage is charged at the current price book.

The price book is read at start only, so once is enough. Steps are small, and each is one
transaction: the row that reverses the old charge, and its replacement.
"""

from functools import partial

from services.cost import pools, store
from services.cost.core.corrections import replacement, reprice, reversal
from services.cost.core.prices import PriceBook
from services.cost.handlers import observe
from services.cost.instruments import REPRICED
from services.runtime import logs
from services.runtime.errors import is_temporary
from services.runtime.service import Platform

log = logs.get()

BATCH = 100
AGAIN_SECONDS = 5.0


class Corrections:
    def __init__(self, book: PriceBook) -> None:
        self._book = book

    async def run(self, platform: Platform) -> None:
        while True:
            try:
                await self.reprice(platform)
                break
            except Exception as error:
                if not is_temporary(error):
                    raise
                log.warning("unpriced usage not checked", error=repr(error))
                await platform.clock.sleep(AGAIN_SECONDS)
        await platform.stopping.wait()

    async def reprice(self, platform: Platform) -> int:
        """How many charges were replaced."""
        num_replaced = 0
        after = ""
        while True:
            async with platform.database.transaction() as tx:
                charges = await store.unpriced_charges(tx.connection, after, BATCH)
                for charge, correction in charges:
                    new = reprice(charge, correction, self._book)
                    back = reversal(charge)
                    if not new or not await store.insert_charges(tx.connection, [back], correction):
                        continue
                    await tx.emit(back, tenant_id=charge.tenant_id)
                    facts = [replacement(charge, item) for item in new]
                    await pools.reprice(tx.connection, charge, facts)
                    for item, fact in zip(new, facts, strict=True):
                        await store.insert_charges(tx.connection, [fact], item.correction)
                        await tx.emit(fact, tenant_id=fact.tenant_id)
                        tx.after_commit(partial(observe, fact))
                    num_replaced += 1
            if not charges:
                break
            after = charges[-1][0].charge_id
        if num_replaced:
            REPRICED.inc(num_replaced)
            log.info("unpriced usage charged", num_charges=num_replaced)
        return num_replaced
