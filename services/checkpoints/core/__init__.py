"""Pure decisions about checkpoints: location, latest and best, retention."""
