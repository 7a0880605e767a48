"""The story of `make run`: the platform, a real training job, a rank that is killed, a recovery."""
