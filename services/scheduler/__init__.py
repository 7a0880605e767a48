"""The scheduler: which job runs where and when, and what became of it."""
