"""Dashboards for Grafana, one file each; `deploy.documents.dashboards` writes them as JSON."""
