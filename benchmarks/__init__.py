"""Measurements against peers, ours and theirs in one run.

`python -m benchmarks.<name> [--quick] [--json FILE]`
"""
