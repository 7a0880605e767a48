-- What a process did with the record at this offset when it was last seen: nothing that is known,
-- fetch and decode it alone, or handle it alone.
alter table crash_watch add column last_step text not null default 'unknown'
    check (last_step in ('unknown', 'reading', 'handling'));
