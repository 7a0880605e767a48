"""The command line is run in this process, as in the unit tests."""

from tests.unit.cli.conftest import cli as cli
