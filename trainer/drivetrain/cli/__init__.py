"""The command line of Drivetrain: a client of the gateway's REST API, and nothing more.

Every verb reads its input, makes one or a few requests, and renders the answer. Modules that take
long to import (httpx, pydantic, rich) are imported where they are needed, so that `--help` is
quick; nothing here imports torch.
"""
