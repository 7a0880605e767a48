"""Lines of output: stored, read, searched, and moved to the object store."""
