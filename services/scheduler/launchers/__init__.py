"""Launchers start, watch, stop and kill pods; each kind of cluster has one."""
