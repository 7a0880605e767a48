"""Pure decisions of standalone."""
