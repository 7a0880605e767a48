-- Headers as one MessagePack value, [[name, value or nil], ...]: an array column each took most of
-- the time of writing a row. Rows that wait are found by the primary key: hardly any are refused.
drop index outbox_waiting;
alter table outbox add column headers bytea;
update outbox set headers = '\xdd'::bytea || int4send(cardinality(header_names)) || (
    select coalesce(string_agg(
        '\x92db'::bytea || int4send(octet_length(convert_to(name, 'UTF8'))) || convert_to(name, 'UTF8')
        || case when value is null then '\xc0'::bytea
            else '\xc6'::bytea || int4send(octet_length(value)) || value end,
        ''::bytea order by place), ''::bytea)
    from unnest(header_names, header_values) with ordinality as header (name, value, place));
alter table outbox alter column headers set not null, drop column header_names,
    drop column header_values;
