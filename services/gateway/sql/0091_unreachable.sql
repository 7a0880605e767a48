-- Why nothing is known of a run whose nodes do not answer.
alter table runs add column unreachable_seq bigint not null default -1;
alter table runs add column unreachable text;
