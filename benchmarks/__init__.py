"""Benchmarks against peers, both measured in the same run.

`python -m benchmarks.<name> [--quick] [--json FILE]`; all: `make bench`, `make bench-quick`.
"""
