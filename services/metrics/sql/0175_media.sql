-- What programs log besides numbers. The bytes are in the object store, named by their SHA-256.
create table media (
    job_id text not null,
    name text not null,
    step bigint not null,
    attempt bigint not null,
    item bigint not null,
    number bigint not null,
    media text not null,
    image_form text,
    sha256 text not null,
    size_bytes bigint not null,
    caption text not null,
    file_name text,
    logged_at timestamptz not null,
    primary key (job_id, name, step, attempt, item)
);
-- How many rows a job has; it is locked while rows are added, so that the limit holds.
create table media_heads (
    job_id text primary key,
    num_items bigint not null default 0
);
