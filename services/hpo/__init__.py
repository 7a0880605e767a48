"""The search service: runs studies as ordinary jobs and finds the best trial."""
