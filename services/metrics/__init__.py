"""The metrics service: samples, logs and alerts of every run."""
