-- The project that a budget is of, where it is of one.
alter table budget_holds add column project text;
alter table jobs add column project text;
