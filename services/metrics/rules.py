"""Alerts by the rules of a job (`alerts.rules`), from samples of rank 0 as they are stored.

Each rule raises one alert in a run, by the first value beyond it; it ends with the run.
"""

import math
from collections.abc import Sequence

from drivetrain_schemas.metrics import AlertKind
from services.metrics import alerts, store, store_watched
from services.metrics.core.watched import first_beyond
from services.metrics.messages import SampleBatch
from services.runtime.transaction import Tx


async def take(tx: Tx, batches: Sequence[SampleBatch]) -> None:
    of_rank_0 = [batch for batch in batches if batch.key.rank == 0]
    if not of_rank_0:
        return
    rules = await store_watched.rules_of(tx.connection, {batch.job_id for batch in of_rank_0})
    if not rules:
        return
    run_ids = {batch.run_id for batch in of_rank_0 if batch.job_id in rules}
    raised = await store.raised(tx.connection, run_ids, AlertKind.RULE)
    for batch in sorted(of_rank_0, key=lambda one: one.run_id):  # the order of locks
        for rule in rules.get(batch.job_id, ()):
            if (batch.run_id, rule.text) in raised:
                continue  # what stays beyond its limit costs nothing more
            found = first_beyond(rule, *batch.columns.get(rule.metric, ((), ())))
            if found is None:
                continue
            step, value = found
            detail = f"{rule.text}: it is {value:.6g} at step {step}"
            facts = {"series": rule.metric, "step": step, "threshold": rule.limit}
            facts["value"] = value if math.isfinite(value) else None
            alert = alerts.of(batch, AlertKind.RULE, detail, **facts)
            await alerts.raise_once(tx, alert, about=rule.text)
            raised.add((batch.run_id, rule.text))
