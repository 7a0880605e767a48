-- What the page of a job shows first: its events without the many of checkpoints that come and go,
-- and the checkpoints that were not deleted. Both without reading the others.
create index timeline_of_job_notable on timeline (job_id, occurred_at, seq, event_id)
    where job_id is not null and type not in ('checkpoint.committed', 'checkpoint.deleted');
create index checkpoints_not_deleted on checkpoints (job_id, fence desc, step desc, checkpoint_id)
    where deleted_seq < 0;
