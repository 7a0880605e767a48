-- The relay is woken inside its process, and polls; a NOTIFY at every commit cost more than it gave.
drop trigger outbox_notify on outbox;
drop function notify_outbox();
