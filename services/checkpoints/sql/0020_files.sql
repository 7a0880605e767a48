-- The files of jobs: the newest list that was announced, and blobs that no list names.

alter table jobs add column files_list text;

-- Since when a blob was seen without a list that names it. It is deleted after an hour of that.
create table unnamed_blobs (
    job_id text not null,
    key text not null,
    seen_at timestamptz not null default clock_timestamp(),
    primary key (job_id, key)
);

alter table intents drop constraint intents_kind_check;
alter table intents add constraint intents_kind_check
    check (kind in ('list', 'verify', 'read', 'restore', 'delete', 'tidy', 'files'));
