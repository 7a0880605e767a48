"""The pure decisions of a search: the same study and results give the same actions."""
