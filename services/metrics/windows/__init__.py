"""Live windows: the process that folds them (`app.py`); what the service stores and shows."""
