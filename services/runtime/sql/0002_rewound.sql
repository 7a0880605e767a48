-- Partitions that a projection has begun to read from offset 0. Dropping the schema drops this too,
-- so a rebuild begins at 0 again, whatever offsets the group had committed before.
create table rewound (
    consumer_group text not null,
    topic text not null,
    partition integer not null,
    primary key (consumer_group, topic, partition)
);
