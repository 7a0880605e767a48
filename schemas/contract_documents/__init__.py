"""The published form of the contracts, generated from the payload classes only.

`json_schemas`, `asyncapi` and `catalogue` each return the text of files; `compatibility` compares a
JSON Schema with the released one. `schemas/generate.py` writes the files; nothing here does I/O.
"""
