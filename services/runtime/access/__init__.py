"""The rights of every user of Kafka and of every role of Postgres."""
