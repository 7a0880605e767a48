-- When the media of ended jobs are deleted. A job that ended before this has no `ended_at`: kept.
alter table media_heads
    add column tenant_id text,
    add column written_at timestamptz not null default clock_timestamp(),
    add column ended_at timestamptz,
    -- The rows are gone, the objects are to be deleted; then they are.
    add column deleting_at timestamptz,
    add column deleted_at timestamptz;
create index media_heads_ended on media_heads (ended_at) where deleted_at is null;
