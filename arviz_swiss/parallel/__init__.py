"""Rows divided, tasks run, batches kept."""
