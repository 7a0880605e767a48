-- Written once, in the contract (docs/decisions/0009-defaults.md).
alter table jobs alter keep_last drop default, alter keep_best drop default;
