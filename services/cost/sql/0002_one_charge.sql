-- One charge per (allocation, price). The first constraint holds for reversing rows only: a charge
-- reverses nothing, and for a unique constraint no null equals another.
create unique index charges_once on charges (allocation_id, price_id)
    where reverses_charge_id is null;
