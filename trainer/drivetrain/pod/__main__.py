"""Starts a shim cold, in its own interpreter."""

import argparse
import sys
from pathlib import Path

from drivetrain.pod.shim import run_pod

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m drivetrain.pod")
    parser.add_argument("--directory", type=Path, required=True)
    sys.exit(run_pod(parser.parse_args().directory, is_warm=False))
