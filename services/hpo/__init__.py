"""The search service: studies in, trials as ordinary jobs out, the best of them at the end."""
