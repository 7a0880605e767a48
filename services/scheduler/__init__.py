"""The scheduler: which job runs where and when, and how it ended."""
