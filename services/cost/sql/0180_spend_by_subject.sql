-- Spend by subject and day: of the whole tenant (''), a study (its id), a job (its id) or a project
-- ('project/' and its name). The row of day -infinity is the total of all days. It takes the place
-- of daily_spend, and jobs that of trial_jobs.

create table jobs (
    job_id text primary key,
    study_id text,
    project text,
    name text
);
insert into jobs (job_id, study_id) select job_id, study_id from trial_jobs;

create table spend (
    tenant_id text not null,
    subject text not null,
    day date not null,
    charged_micro_usd numeric not null,
    primary key (tenant_id, subject, day)
);

-- What slots cost for this long, rounded once, half to even.
create function cost_of(slot_microseconds numeric, micro_usd_per_slot_hour numeric)
returns numeric language sql immutable as $$
    select quotient - case
        when rest * 2 < 3600000000 or (rest * 2 = 3600000000 and (quotient - 1) % 2 = 0)
        then 1 else 0 end
    from (select div(product, 3600000000) + 1 as quotient, product % 3600000000 as rest
          from (select slot_microseconds * micro_usd_per_slot_hour as product) as given) as divided
$$;

create function slot_time(num_slots integer, first timestamptz, last timestamptz)
returns numeric language sql immutable as $$
    select num_slots * extract(epoch from greatest(last - first, interval '0')) * 1000000
$$;

-- A charge is cut at the midnights of UTC, as tests/handlers/cost/days.py does. Its job is locked: a
-- study or project that is learned meanwhile gets it, once.
create function add_to_spend() returns trigger language plpgsql as $$
begin
    insert into jobs (job_id) select distinct job_id from new_charges order by 1
        on conflict do nothing;
    perform from jobs where job_id in (select job_id from new_charges) order by job_id for share;
    insert into spend
        with part as (
            select tenant_id, job_id, midnight::date as day,
                (case when reverses_charge_id is null then 1 else -1 end)
                * (cost_of(slot_time(num_slots, starts_at,
                        least(ends_at, (midnight + interval '1 day') at time zone 'UTC')),
                        price_micro_usd_per_slot_hour)
                    - cost_of(slot_time(num_slots, starts_at, midnight at time zone 'UTC'),
                        price_micro_usd_per_slot_hour)) as amount
            from new_charges, generate_series(
                date_trunc('day', starts_at at time zone 'UTC'),
                (ends_at at time zone 'UTC') - interval '1 microsecond', interval '1 day')
                as midnight
        )
        select tenant_id, subject, of_day, sum(amount)
        from part join jobs using (job_id),
            lateral (values (''), (job_id), (study_id), ('project/' || project)) as of (subject),
            lateral (values (day), ('-infinity'::date)) as at (of_day)
        where subject is not null
        group by tenant_id, subject, of_day order by tenant_id, subject, of_day
    on conflict (tenant_id, subject, day) do update set
        charged_micro_usd = spend.charged_micro_usd + excluded.charged_micro_usd;
    return null;
end $$;

-- The charges of before, as if they were new.
create table earlier_charges (like charges);  -- the service's user may not make temporary ones
create trigger earlier after insert on earlier_charges
    referencing new table as new_charges for each statement execute function add_to_spend();
insert into earlier_charges select * from charges;
drop table earlier_charges;

-- A trigger, so that charges of a release that does not know the table count as well.
create trigger charges_add_to_spend after insert on charges
    referencing new table as new_charges for each statement execute function add_to_spend();

-- When the run ended: its slots are not paid for after that, whenever they are released.
alter table run_facts add column ended_at timestamptz;
