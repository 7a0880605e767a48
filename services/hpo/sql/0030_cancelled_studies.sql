-- A study that its owner cancelled, and why; it ends once none of its trials runs.
alter table studies add column cancel_reason text;
