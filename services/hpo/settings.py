"""Settings of the search service: the runtime's, and none of its own."""

from services.runtime.settings import Settings


class HpoSettings(Settings):
    """Everything a search needs is in its study."""
