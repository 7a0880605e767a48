"""Pure rules of the gateway: how events change views and read as text, and who may send what."""
