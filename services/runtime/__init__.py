"""The imperative shell that all services share: a library without business words."""
