"""Pure decisions about checkpoints: where they lie, which is latest and best, what may go."""
