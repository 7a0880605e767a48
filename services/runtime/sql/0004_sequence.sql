-- The highest sequence number heard of each (topic, key), by a service that hears all of them.
create table sequence (
    topic text not null,
    key text not null,
    seq bigint not null,
    primary key (topic, key)
);
