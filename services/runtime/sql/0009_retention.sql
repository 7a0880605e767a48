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
