"""Series of samples in Postgres: names, chunks, levels, and the curves read from them."""
