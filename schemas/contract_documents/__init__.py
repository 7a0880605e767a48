"""The published form of the contracts, generated from the payload classes only.

`json_schemas`, `asyncapi` and `catalogue` each return the text of files. `schemas/generate.py`
writes them; nothing here does I/O.
"""
