-- A row is deleted when it is acknowledged: cheaper than a mark, an index and a sweep.
drop index outbox_published;
drop index outbox_unpublished;
delete from outbox where published_at is not null;
alter table outbox
    drop column published_at,
    -- What the record takes on the wire; rows of an earlier version may be as large as any.
    add column size_bytes integer not null default 2000000,
    -- Kafka will never take it as it is: set aside for a person to look at.
    add column refused_at timestamptz,
    add column refusal text;
alter table outbox alter column size_bytes drop default;
create index outbox_refused on outbox (refused_at) where refused_at is not null;
create index outbox_waiting on outbox (id) where refused_at is null;
