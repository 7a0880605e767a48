"""Examples, numbered in the order in which to read them; `demo` is what `make run` shows."""
