"""Measurements against peers, both in one run. `python -m benchmarks.<name> [--quick] [--json FILE]`."""
