-- The exception that ended the job's last run, and its step: the same one twice is not tried again.
alter table jobs add column last_failure text not null default '';
