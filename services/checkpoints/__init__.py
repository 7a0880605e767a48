"""The checkpoints service: the catalogue of every job's checkpoints, verified and pruned."""
