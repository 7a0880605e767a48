-- What was requested of a job besides a cancel: stop or pause. A pause is over when the job is
-- paused, so it stands here only while the run ends. `saves_last`: a stop leaves a checkpoint.
alter table jobs add column requested text;
alter table jobs add column requested_reason text;
alter table jobs add column saves_last boolean not null default true;
create trigger jobs_draw_change_requested
    before update of requested, requested_reason, saves_last
    on jobs for each row execute function draw_job_change();

-- Commands besides cancels that came before the request for their job.
alter table early_cancels add column verb text not null default 'cancel';
alter table early_cancels add column saves_last boolean not null default true;
