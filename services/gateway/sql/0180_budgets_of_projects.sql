-- The project that a budget is of, where it is of one.
alter table budgets add column project text;
