"""What is published of the contracts, made from the payload classes and nothing else.

`json_schemas`, `asyncapi` and `catalogue` each return the text of files; `compatibility` compares a
JSON Schema with the released one. `schemas/generate.py` writes the files; nothing here does I/O.
"""
