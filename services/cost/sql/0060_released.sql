-- Released allocations are deleted by age (services/cost/retention.py).
create index allocations_released on allocations (released_at) where released_at is not null;
