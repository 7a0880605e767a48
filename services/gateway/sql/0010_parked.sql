-- Parked records by the ten thousand: what became of each, counters by group, keyset indexes.
-- A row whose parked_at is null is a decision about a record that has not been read yet.
alter table parked
    alter column service drop not null,
    alter column topic drop not null,
    alter column reason drop not null,
    alter column detail drop not null,
    alter column parked_at drop not null,
    alter column header_names drop not null,
    alter column header_values drop not null,
    -- "" where the record names no type that we know, so that senders cannot make groups.
    add column event_type text not null default '',
    add column state text not null default 'open',
    add column places text[] not null default '{}',
    add column decision_state text,
    add column decision_num_parkings integer,
    add column decided_at timestamptz,
    add column decision_note text not null default '',
    add column replayed_at timestamptz;

update parked set places = array[concat_ws('/', topic, partition, "offset")];
update parked set state = 'replayed', decision_state = 'replayed', decision_num_parkings = 1,
    decided_at = replays.replayed_at, replayed_at = replays.replayed_at
from replays where replays.parked_id = parked.parked_id;
drop table replays;

drop index parked_listed;
create index parked_listed on parked (state, parked_at desc, parked_id desc)
    where parked_at is not null;
create index parked_in_group
    on parked (service, topic, reason, event_type, state, parked_at desc, parked_id desc)
    where parked_at is not null;

create table parked_groups (
    service text not null,
    topic text not null,
    reason text not null,
    event_type text not null,
    num_open bigint not null default 0,
    num_replayed bigint not null default 0,
    num_discarded bigint not null default 0,
    primary key (service, topic, reason, event_type)
);
insert into parked_groups
select service, topic, reason, event_type, count(*) filter (where state = 'open'),
    count(*) filter (where state = 'replayed'), 0
from parked group by 1, 2, 3, 4;
