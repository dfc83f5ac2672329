"""Arrays: NumPy and SciPy only."""
