"""Webhooks: the operator's file, what is to be sent, and the sending."""
