"""The process of the metrics service that folds live windows; it stores nothing itself."""
