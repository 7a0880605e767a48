"""Pure decisions about metrics: merging series, downsampling, stalled runs."""
