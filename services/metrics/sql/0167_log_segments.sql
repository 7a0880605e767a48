-- Lines of ended jobs, and older ones of a job with very many, rest in the object store. A segment
-- holds the lines from one position to before another. It is written, read back and only then
-- recorded, in the transaction that deletes its chunks: state `writing` is an intent.
create table log_segments (
    id bigint generated always as identity primary key,
    job_id text not null,
    key text not null unique,
    state text not null check (state in ('writing', 'stored', 'deleting')),
    created_at timestamptz not null default clock_timestamp(),
    first_position bigint not null,
    end_position bigint not null,
    -- Of a stored one: the bytes of its lines, and when the first and the last of them arrived.
    num_bytes bigint not null default 0,
    first_at timestamptz,
    last_at timestamptz,
    -- Of each block, which is compressed by itself: where its lines end, its bytes in the object and
    -- unpacked, and the highest level in it.
    block_ends bigint[],
    block_sizes integer[],
    block_bytes integer[],
    block_levels smallint[]
);
create index log_segments_of_job on log_segments (job_id, end_position) where state = 'stored';
create index log_segments_by_age on log_segments (last_at) where state = 'stored';
create index log_segments_unfinished on log_segments (id) where state <> 'stored';
-- Jobs with lines in log_chunks, until they are moved.
create table log_hot (
    job_id text primary key,
    num_bytes bigint not null,
    num_chunks bigint not null,
    written_at timestamptz not null
);
-- The size of chunks that are there already is estimated.
insert into log_hot (job_id, num_bytes, num_chunks, written_at)
    select job_id, count(*) * 8192, count(*), max(received_at) from log_chunks group by job_id;
-- The bytes of a job's lines in the object store, and how many of its first lines were deleted.
alter table log_heads add column num_cold_bytes bigint not null default 0;
alter table log_heads add column num_deleted_lines bigint not null default 0;
