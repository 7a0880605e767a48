"""Pure decisions about metrics: every step once, fewer points, when a run is stalled."""
