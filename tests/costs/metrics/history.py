"""What jobs have logged before, written by statements: it is not what a test counts."""

from drivetrain_schemas.ids import run_id_for
from services.metrics.series.rolling import Roller
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from tests.handlers.metrics.builders import JOB

RUN = run_id_for(JOB, 1)
SAMPLES_OF_CHUNK = 1024
LINES_OF_CHUNK = 20

_SAMPLES = """
insert into chunks (job_id, run_id, attempt, rank, series, num_samples, min_step, max_step, steps,
    values)
select '{job}', '{run}', 1, 0, name, {size}, n * {size}, n * {size} + {size} - 1, steps,
    array_fill(0.5::float8, array[{size}])
from generate_series(0, {num_chunks} - 1) as n, unnest(array{names}) as name,
    lateral (select array_agg(step) as steps
             from generate_series(n * {size}, n * {size} + {size} - 1) as step) as of_chunk;
insert into series (run_id, rank, name, job_id, attempt, num_samples, first_step, last_step,
    last_value)
select '{run}', 0, name, '{job}', 1, {size} * {num_chunks}, 0, {size} * {num_chunks} - 1, 0.5
from unnest(array{names}) as name;
insert into series_names (job_id, name) select '{job}', unnest(array{names});
insert into sample_heads (job_id, num_names) values ('{job}', cardinality(array{names}));
analyze;
"""
# Jobs that have ended: a series, a chunk, a batch, a run, lines and a window of each.
_OTHER_JOBS = """
insert into chunks (job_id, run_id, attempt, rank, series, num_samples, min_step, max_step, steps,
    values, is_new)
select 'job_' || n, 'run_' || n, 1, 0, 'loss', 1, 1, 1, '{{1}}', '{{0.5}}', false
from generate_series({first}, {last}) as n;
insert into series (run_id, rank, name, job_id, attempt, num_samples, first_step, last_step,
    last_value, base_width)
select 'run_' || n, 0, 'loss', 'job_' || n, 1, 1, 1, 1, 0.5, 16
from generate_series({first}, {last}) as n;
insert into series_names (job_id, name)
select 'job_' || n, 'loss' from generate_series({first}, {last}) as n;
insert into batches (run_id, rank, session, batch, stream)
select 'run_' || n, 0, 's', 1, 'samples' from generate_series({first}, {last}) as n;
insert into runs (run_id, job_id, tenant_id, attempt, state)
select 'run_' || n, 'job_' || n, 'default', 1, 'succeeded'
from generate_series({first}, {last}) as n;
insert into trials (job_id, tenant_id, study_id, number, metric, rungs, is_ended, finished_at)
select 'job_' || n, 'default', 's', n, 'loss', '{{1}}', true, now()
from generate_series({first}, {last}) as n;
insert into log_heads (job_id, num_lines, num_dropped_bytes)
select 'job_' || n, 1, 0 from generate_series({first}, {last}) as n;
insert into log_segments (job_id, key, state, first_position, end_position, num_bytes, first_at,
    last_at)
select 'job_' || n, 'key_' || n, 'stored', 0, 1, 10, now(), now()
from generate_series({first}, {last}) as n;
insert into media_heads (job_id, num_items, tenant_id, ended_at)
select 'job_' || n, 1, 'default', now() - interval '1 year'
from generate_series({first}, {last}) as n;
insert into cold_files (key, state, newest_at)
select 'file_' || n, 'stored', now() from generate_series({first}, {last}) as n;
insert into windows (run_id, source_id, starts_at, job_id, attempt, version, series)
select 'run_' || n, 'run_' || n || '/0', 0, 'job_' || n, 1, 1, '{{}}'
from generate_series({first}, {last}) as n;
insert into run_health (run_id, next_window, health)
select 'run_' || n, 0, '{{}}' from generate_series({first}, {last}) as n;
insert into alerts (run_id, alert, series)
select 'run_' || n, 'not_finite', 'loss' from generate_series({first}, {last}) as n;
analyze;
"""
_LINES = """
insert into log_chunks (job_id, run_id, attempt, rank, session, batch, first_position,
    end_position, first_line, lines, max_level, size_bytes)
select '{job}', '{run}', 1, 0, 's1', n, n * {size}, n * {size} + {size}, n * {size}, lines, 0,
    {size} * 97
from generate_series(0, {num_chunks} - 1) as n,
    lateral (select array_agg(md5(n::text) || md5(number::text) || md5((n * number)::text)) as lines
             from generate_series(1, {size}) as number) as of_chunk;
insert into log_heads (job_id, num_lines, num_dropped_bytes)
values ('{job}', {size} * {num_chunks}, 0);
insert into log_hot (job_id, num_bytes, num_chunks, written_at)
values ('{job}', {size} * {num_chunks} * 97, {num_chunks}, now());
analyze;
"""


async def add_samples(metrics: Database, num_chunks: int, num_series: int = 1) -> None:
    """Of one run, in its levels."""
    names = [f"loss-{number}" for number in range(num_series)]
    statement = _SAMPLES.format(
        job=JOB, run=RUN, size=SAMPLES_OF_CHUNK, num_chunks=num_chunks, names=names
    )
    async with metrics.connection() as connection:
        await connection.execute(statement)
    await Roller(metrics, SystemClock()).roll_all()


async def add_other_jobs(metrics: Database, number: int, *, first: int = 0) -> None:
    async with metrics.connection() as connection:
        await connection.execute(_OTHER_JOBS.format(first=first, last=first + number - 1))


async def add_lines(metrics: Database, num_chunks: int) -> None:
    statement = _LINES.format(job=JOB, run=RUN, size=LINES_OF_CHUNK, num_chunks=num_chunks)
    async with metrics.connection() as connection:
        await connection.execute(statement)
