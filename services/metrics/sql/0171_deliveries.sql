-- Events that webhooks are to get: a row is there until its webhook has answered, or is given up.
create table deliveries (
    id bigint generated always as identity primary key,
    webhook text not null,
    event_id text not null,
    body text not null,
    num_tries integer not null default 0,
    not_before timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    unique (webhook, event_id)
);
create index deliveries_due on deliveries (webhook, not_before);
create index deliveries_by_age on deliveries (created_at);
