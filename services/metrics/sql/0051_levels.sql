-- Sums of samples in buckets of steps, kept as samples arrive: a chart of a long series reads these.
-- A row is a tile of 64 buckets of one width; widths grow by four from level to level.
create table levels (
    run_id text not null,
    rank integer not null,
    series text not null,
    level smallint not null,
    tile bigint not null,
    first_steps bigint[] not null,
    last_steps bigint[] not null,
    num_finite integer[] not null,
    lows double precision[] not null,
    highs double precision[] not null,
    means double precision[] not null,
    not_finite_steps bigint[] not null,
    primary key (run_id, rank, series, level, tile)
);
-- The width of level 0; null while the series is so short that its samples are read instead.
alter table series add column base_width bigint;
-- A new chunk is not in the levels yet, and may be merged with its neighbours.
alter table chunks add column is_new boolean not null default true;
create index chunks_new on chunks (run_id, rank, series, id) where is_new;
