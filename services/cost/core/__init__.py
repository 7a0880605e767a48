"""Pure decisions about money: which price holds when, and what an interval costs."""
