"""From batches to one merged object, and back."""
