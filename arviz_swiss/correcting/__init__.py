"""Rounds, weights and certificates: the merge against the full posterior."""
