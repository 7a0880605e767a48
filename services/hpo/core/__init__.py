"""The pure decisions of a search: same study, same results, same actions."""
