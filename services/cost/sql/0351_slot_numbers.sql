-- Which slots of which node are held, such as {"node-a": [0, 3]}: a node that loses slots offers those
-- with the lowest numbers. A release that does not know the column leaves it empty.
alter table allocations add column slot_numbers jsonb;
