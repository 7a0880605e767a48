"""OpenLineage events: written when a run begins, saves, ends; sent in order to each endpoint."""
