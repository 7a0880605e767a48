-- An id and a source of 512 characters each exceed what an index row takes; their digest does not.
alter table inbox drop constraint inbox_pkey;
alter table inbox add column digest bytea;
update inbox set digest =
    sha256(convert_to(source, 'UTF8') || '\x00'::bytea || convert_to(event_id, 'UTF8'));
alter table inbox drop column source, drop column event_id, add primary key (digest);
