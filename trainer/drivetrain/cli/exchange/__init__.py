"""Jobs in the forms of other tools: MLflow, TensorBoard, tables, Hugging Face, OpenLineage."""
