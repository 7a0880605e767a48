-- What a delivery is about, and whether it tells of its begin or its end: an end is not sent before
-- its begin. Null of deliveries that wait for nothing, and of those of the release before.
alter table deliveries add column about text, add column is_begin boolean;
create index deliveries_by_subject on deliveries (webhook, about, id) where about is not null;
