"""The cost service: what every job spends, in integer micro-dollars."""
