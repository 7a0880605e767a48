"""The imperative shell that all services share: a library without domain terms."""
