-- Until when an allocation accrues whose release has not been read (services/cost/store_accrual.py).
-- When its job ended, or was granted slots again.
alter table allocations add column over_at timestamptz;
-- Since when no node of the run answers.
alter table run_facts add column unreachable_at timestamptz;
