"""Pure decisions about money: which price applies when, and what an interval costs."""
