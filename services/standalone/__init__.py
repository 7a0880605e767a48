"""Everything on one machine: real Kafka, real Postgres, every service and the warm template."""
