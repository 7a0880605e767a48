-- What of each live job is watched for its alerts (services/metrics/core/watched.py).
alter table job_projects add column losses text[];
alter table job_projects add column stalled_seconds double precision;
