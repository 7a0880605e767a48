-- Old samples rest in Parquet files of the object store. A file is written, read back and only then
-- recorded, in the transaction that deletes its chunks: state `writing` is an intent.
create table cold_files (
    id bigint generated always as identity primary key,
    key text not null unique,
    state text not null check (state in ('writing', 'stored', 'deleting')),
    created_at timestamptz not null default clock_timestamp(),
    -- Of a stored file: where its footer begins, and when the newest of its samples arrived.
    size_bytes bigint not null default 0,
    footer_offset bigint not null default 0,
    num_samples bigint not null default 0,
    newest_at timestamptz
);
create index cold_files_unfinished on cold_files (id) where state <> 'stored';
create index cold_files_by_age on cold_files (newest_at) where state = 'stored';
-- Which rows of which row group are of one series of one run.
create table cold_chunks (
    job_id text not null,
    rank integer not null,
    series text not null,
    file_id bigint not null,
    row_group integer not null,
    first_row integer not null,
    run_id text not null,
    attempt integer not null,
    num_samples integer not null,
    min_step bigint not null,
    max_step bigint not null,
    -- The number of the last chunk that went into it, so that polls miss none.
    newest_chunk bigint not null,
    primary key (job_id, rank, series, file_id, row_group, first_row)
);
create index cold_chunks_of_file on cold_chunks (file_id);
-- Chunks that may be old enough.
create index chunks_by_age on chunks (received_at) where not is_new;
-- When the newest sample arrived that was moved to the object store.
alter table series add column cold_at timestamptz;
create index series_cold on series (cold_at) where cold_at is not null;
