"""The services of the platform, and the runtime they share."""
