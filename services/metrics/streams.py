"""Samples and logs in batches, unique by (run, rank, session, batch): repetitions are ignored.

A batch handler receives the records of one poll in one transaction and returns those that cannot be
read. Fences are not used here: samples of an older run stay with that run, and readers use the
highest attempt per step.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from drivetrain_schemas.envelope import InvalidEvent
from drivetrain_schemas.metrics import AlertKind, AlertRaised, LogsWritten, SamplesRecorded
from services.metrics import alerts, ranks, rules, rungs, store
from services.metrics.core.log_levels import highest
from services.metrics.core.series import Summary, summarize
from services.metrics.instruments import DROPPED_BYTES, LEFT_OUT, LINES, REPLAYED, SAMPLES
from services.metrics.logs import store as log_store
from services.metrics.logs.store import LogChunk
from services.metrics.media import is_media, take_media
from services.metrics.messages import BatchKey, LogBatch, SampleBatch, read_logs, read_samples
from services.metrics.quotas import Quotas, Rates, num_bytes
from services.metrics.series import names
from services.metrics.series.copying import ChunkRow
from services.metrics.store import SeriesRow
from services.runtime.bus import Record
from services.runtime.instruments import FORGED
from services.runtime.parking import InvalidRecord
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

# Of one job's lines that wait for the object store.
MAX_HOT_BYTES = 256 * 2**20
CUT = (
    "a pod writes more output than logs.kib_per_second of the job, or the operator, allows: lines "
    "beyond it are left out and counted"
)

B = TypeVar("B", SampleBatch, LogBatch)
_TYPES = {SampleBatch: SamplesRecorded.kind.type, LogBatch: LogsWritten.kind.type}


async def take_samples(
    tokens: RunTokens,
    tx: Tx,
    records: Sequence[Record],
    *,
    quotas: Quotas | None = None,
    of_media: Quotas | None = None,
) -> Sequence[InvalidRecord]:
    """Store the samples of new batches, and raise alerts for non-finite values.

    `of_media`: the quotas of pictures, tables and so on, which are on the same topic.
    """
    media = [record for record in records if is_media(record)]
    invalid = await take_media(tokens, tx, media, quotas=of_media) if media else ()
    samples = [record for record in records if not is_media(record)] if media else records
    read, rejected = _read(tokens, read_samples, samples)
    rejected += invalid
    of_ranks = await ranks.divide(tx, await _not_seen(tx, "samples", read))
    batches = of_ranks.admitted
    if quotas is not None:
        divided = await quotas.divide(tx, batches)
        batches = divided.admitted
        await _leave_out(tx, divided.beyond, quotas.rates)
    known = await names.admit(tx, batches)
    chunks: list[ChunkRow] = []
    sums: dict[tuple[str, int, str], SeriesRow] = {}
    not_finite: dict[tuple[str, str], AlertRaised] = {}
    for batch in batches:
        for name, (steps, values) in batch.columns.items():
            if not steps or (batch.job_id, name) not in known:
                continue
            summary = summarize(steps, values)
            chunks.append(
                ChunkRow(
                    job_id=batch.job_id,
                    run_id=batch.key.run_id,
                    attempt=batch.attempt,
                    rank=batch.key.rank,
                    series=name,
                    num_samples=summary.num_samples,
                    min_step=summary.min_step,
                    max_step=summary.max_step,
                    steps=steps,
                    values=values,
                )
            )
            series = (batch.key.run_id, batch.key.rank, name)
            sums[series] = _added(sums.get(series), batch, name, summary)
            if summary.first_not_finite_step is not None:
                step = summary.first_not_finite_step
                detail = f"{name} is not finite at step {step} (rank {batch.key.rank})"
                alert = alerts.of(batch, AlertKind.NOT_FINITE, detail, series=name, step=step)
                not_finite.setdefault((batch.key.run_id, name), alert)
    if chunks:
        await store.insert_chunks(tx.connection, chunks)
        await store.add_to_series(tx.connection, list(sums.values()))
    for _, alert in sorted(not_finite.items()):  # all transactions lock rows in this order
        await alerts.raise_once(tx, alert)
    await names.leave_out(tx, batches, known)
    await ranks.leave_out(tx, of_ranks.beyond)
    await rungs.take(tx, batches)
    await rules.take(tx, batches)
    num_samples = sum(chunk.num_samples for chunk in chunks)
    tx.after_commit(lambda: SAMPLES.inc(num_samples))
    return rejected


async def take_logs(
    tokens: RunTokens, tx: Tx, records: Sequence[Record], *, quotas: Quotas | None = None
) -> Sequence[InvalidRecord]:
    """Store the lines of batches not seen before; each gets its position among the job's lines."""
    read, rejected = _read(tokens, read_logs, records)
    batches = await _not_seen(tx, "logs", read)
    by_job: dict[str, list[LogBatch]] = {batch.job_id: [] for batch in batches}
    num_left_out = dict.fromkeys(by_job, 0)
    if quotas is not None:
        divided = await quotas.divide(tx, batches)
        batches = divided.admitted
        for batch in divided.beyond:
            num_left_out[batch.job_id] += num_bytes(batch) + batch.num_dropped_bytes
        reason = quotas.rates.exceeded("bytes of lines", "print less")
        told = ((batch, reason) for batch in divided.beyond)
        await alerts.raise_left_out(tx, told, about="quota", kind=AlertKind.LOG_DROPPED)
    cut = ((batch, CUT) for batch in batches if batch.num_dropped_bytes)
    await alerts.raise_left_out(tx, cut, about="pod", kind=AlertKind.LOG_DROPPED)
    for batch in batches:
        by_job[batch.job_id].append(batch)
    chunks = [
        chunk
        for job_id in sorted(by_job)  # all transactions lock heads in this order
        for chunk in await _log_chunks(tx, job_id, by_job[job_id], num_left_out[job_id])
    ]
    if chunks:
        await log_store.insert_chunks(tx.connection, chunks)
    num_lines = sum(len(chunk.lines) for chunk in chunks)
    num_dropped = sum(batch.num_dropped_bytes for batch in batches) + sum(num_left_out.values())
    tx.after_commit(lambda: LINES.inc(num_lines))
    tx.after_commit(lambda: DROPPED_BYTES.inc(num_dropped))
    return rejected


def _read(
    tokens: RunTokens, reader: Callable[[Record], B], records: Sequence[Record]
) -> tuple[dict[BatchKey, B], list[InvalidRecord]]:
    """The batches of pods of the runs that they name, or of later runs of the same job that send
    them again; others are counted and ignored."""
    read: dict[BatchKey, B] = {}
    rejected: list[InvalidRecord] = []
    for record in records:
        try:
            batch = reader(record)
        except InvalidEvent as invalid:
            rejected.append(InvalidRecord(record, str(invalid.reason), invalid.detail))
            continue
        if _is_signed(tokens, batch):
            read.setdefault(batch.key, batch)
        else:
            FORGED.labels(_TYPES[type(batch)]).inc()
    return read, rejected


def _is_signed(tokens: RunTokens, batch: SampleBatch | LogBatch) -> bool:
    run_id, token = batch.key.run_id, batch.run_token
    by = batch.resent_by if isinstance(batch, SampleBatch) else None
    if by is None:
        return tokens.is_of_run(run_id, batch.fence, batch.job_id, batch.attempt, token)
    later = (by.attempt, by.fence)
    return tokens.is_of_later_run(run_id, batch.job_id, batch.attempt, later, token)


async def _not_seen(tx: Tx, stream: store.Stream, read: dict[BatchKey, B]) -> list[B]:
    """The batches that are new, in the order they were read."""
    if not read:
        return []
    new = await store.insert_batches(tx.connection, stream, read)
    tx.after_commit(lambda: REPLAYED.labels(stream).inc(len(read) - len(new)))
    return [batch for key, batch in read.items() if key in new]


async def _leave_out(tx: Tx, batches: Sequence[SampleBatch], rates: Rates) -> None:
    """Count the samples beyond a quota, and say so once per run."""
    num_samples: dict[str, int] = {}
    for batch in batches:
        of_batch = sum(len(steps) for steps, _ in batch.columns.values())
        num_samples[batch.job_id] = num_samples.get(batch.job_id, 0) + of_batch
    reason = rates.exceeded("samples", "log fewer series, or not in every step")
    await alerts.raise_left_out(tx, ((batch, reason) for batch in batches), about="quota")
    for job_id in sorted(num_samples):
        await store.add_left_out(tx.connection, job_id, num_samples[job_id])
    total = sum(num_samples.values())
    tx.after_commit(lambda: LEFT_OUT.labels("quota").inc(total))


def _added(old: SeriesRow | None, batch: SampleBatch, name: str, summary: Summary) -> SeriesRow:
    """The sums of a series with one more chunk."""
    is_latest = old is None or summary.max_step >= old.last_step
    return SeriesRow(
        run_id=batch.key.run_id,
        rank=batch.key.rank,
        name=name,
        job_id=batch.job_id,
        attempt=batch.attempt,
        num_samples=summary.num_samples + (old.num_samples if old else 0),
        first_step=min(summary.min_step, old.first_step) if old else summary.min_step,
        last_step=summary.max_step if old is None or is_latest else old.last_step,
        last_value=summary.last_value if old is None or is_latest else old.last_value,
    )


async def _log_chunks(
    tx: Tx, job_id: str, batches: Sequence[LogBatch], num_left_out: int
) -> list[LogChunk]:
    """The chunks of one job, at the positions after its last line.

    `num_left_out`: bytes beyond a quota. A job with very much that could not be moved to the object
    store gets no more: its lines are counted as left out.
    """
    sizes = [num_bytes(batch) for batch in batches]
    num_dropped_bytes = num_left_out + sum(batch.num_dropped_bytes for batch in batches)
    if await log_store.num_hot_bytes(tx.connection, job_id) > MAX_HOT_BYTES:
        tx.after_commit(lambda: DROPPED_BYTES.inc(sum(sizes)))
        await log_store.add_lines(tx.connection, job_id, 0, num_dropped_bytes + sum(sizes))
        return []
    num_lines = sum(len(batch.lines) for batch in batches)
    position = await log_store.add_lines(tx.connection, job_id, num_lines, num_dropped_bytes)
    if not batches:
        return []
    await log_store.add_hot(tx.connection, job_id, sum(sizes), len(batches))
    chunks = []
    for batch, size_bytes in zip(batches, sizes, strict=True):
        chunks.append(
            LogChunk(
                job_id=job_id,
                run_id=batch.key.run_id,
                attempt=batch.attempt,
                rank=batch.key.rank,
                session=batch.key.session,
                batch=batch.key.batch,
                first_position=position,
                end_position=position + len(batch.lines),
                first_line=batch.first_line,
                lines=batch.lines,
                max_level=highest(batch.lines),
                size_bytes=size_bytes,
            )
        )
        position += len(batch.lines)
    return chunks
