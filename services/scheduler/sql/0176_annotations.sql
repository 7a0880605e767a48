-- What people say of a job after its submission. A job without a row has what its spec says.
create table annotations (
    job_id text primary key,
    tags jsonb not null,
    note text not null,
    project text
);
