-- An event id is unique within its source only, and a refusal does not name the source of the
-- command: two producers may use one id for requests about two subjects.
alter table rejections
    drop constraint rejections_pkey,
    add primary key (command_event_id, subject_id);
