"""The cost service: the cost of every job, in integer micro-dollars."""
