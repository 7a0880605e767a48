-- What every service's schema holds: events it has handled, events it will publish, crash watch.

-- An event's effects happen once: its row is inserted in the transaction that has the effects. The
-- digest is of the source and the id, which may be longer than what an index row takes.
create table inbox (
    topic text not null,
    partition integer not null,
    "offset" bigint not null,
    handled_at timestamptz not null default clock_timestamp(),
    digest bytea primary key
);
-- Oldest rows first, topic by topic (services/runtime/retention.py).
create index inbox_by_age on inbox (topic, handled_at);

-- Up to where the events of a partition were handled whose inbox rows are pruned.
create table inbox_floor (
    topic text not null,
    partition integer not null,
    "offset" bigint not null,
    handled_until timestamptz not null,
    primary key (topic, partition)
);

-- The last sequence number of each (topic, key); its row lock orders what is emitted under it.
create table outbox_counter (
    topic text not null,
    key text not null,
    seq bigint not null,
    primary key (topic, key)
);

-- A row is deleted when it is acknowledged: cheaper than a mark, an index and a sweep.
create table outbox (
    id bigserial primary key,
    topic text not null,
    key bytea,
    value bytea,
    created_at timestamptz not null default clock_timestamp(),
    -- What the record takes on the wire.
    size_bytes integer not null,
    -- Kafka will never take it as it is: set aside for a person to look at.
    refused_at timestamptz,
    refusal text,
    -- One MessagePack value, [[name, value or nil], ...]: an array column for each took most of the
    -- time of writing a row.
    headers bytea not null
);
create index outbox_refused on outbox (refused_at) where refused_at is not null;

-- How much of a topic was parked and dropped on the day of its last parking.
create table parked_days (
    topic text primary key,
    day date not null,
    num_records integer not null default 0,
    num_bytes bigint not null default 0,
    num_dropped bigint not null default 0
);

-- Where a process started reading a partition, and how often it has started there in vain.
create table crash_watch (
    consumer_group text not null,
    topic text not null,
    partition integer not null,
    "offset" bigint not null,
    starts integer not null,
    -- What was done with the record at this offset: nothing that is known, fetched and decoded
    -- alone, or handled alone.
    last_step text not null default 'unknown'
        check (last_step in ('unknown', 'reading', 'handling')),
    primary key (consumer_group, topic, partition)
);

-- Partitions that a projection has begun to read from offset 0. Dropping the schema drops this too,
-- so a rebuild begins at 0 again, whatever offsets the group had committed before.
create table rewound (
    consumer_group text not null,
    topic text not null,
    partition integer not null,
    primary key (consumer_group, topic, partition)
);

-- The highest sequence number heard of each (topic, key), by a service that hears all of them.
create table sequence (
    topic text not null,
    key text not null,
    seq bigint not null,
    primary key (topic, key)
);
