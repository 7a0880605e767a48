"""Pure rules of the gateway: who may ask, what an upload may hold, how events are told."""
