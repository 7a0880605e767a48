"""The imperative shell that all services share: a library among services, with no business words."""
