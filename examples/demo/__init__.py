"""The demo of `make run`: start the platform, train a model, kill a rank, show the recovery."""
