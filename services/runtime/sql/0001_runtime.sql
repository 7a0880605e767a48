-- What every service's schema holds: events it has handled, events it will publish, crash watch.

-- An event's effects happen once: its row is inserted in the transaction that has the effects.
create table inbox (
    source text not null,
    event_id text not null,
    topic text not null,
    partition integer not null,
    "offset" bigint not null,
    handled_at timestamptz not null default clock_timestamp(),
    primary key (source, event_id)
);

-- The last sequence number of each (topic, key); its row lock orders what is emitted under it.
create table outbox_counter (
    topic text not null,
    key text not null,
    seq bigint not null,
    primary key (topic, key)
);

create table outbox (
    id bigserial primary key,
    topic text not null,
    key bytea,
    value bytea,
    header_names text[] not null,
    header_values bytea[] not null,
    created_at timestamptz not null default clock_timestamp(),
    published_at timestamptz
);
create index outbox_unpublished on outbox (id) where published_at is null;
create index outbox_published on outbox (published_at) where published_at is not null;

-- NOTIFY only wakes the relay; polling is the truth.
create function notify_outbox() returns trigger language plpgsql as $$
begin
    perform pg_notify('outbox_' || tg_table_schema, '');
    return null;
end $$;
create trigger outbox_notify after insert on outbox
    for each statement execute function notify_outbox();

-- Where a process started reading a partition, and how often it has started there in vain.
create table crash_watch (
    consumer_group text not null,
    topic text not null,
    partition integer not null,
    "offset" bigint not null,
    starts integer not null,
    primary key (consumer_group, topic, partition)
);
