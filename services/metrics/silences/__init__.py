"""Silences: the commands about them, and the deliveries that they hold back."""
