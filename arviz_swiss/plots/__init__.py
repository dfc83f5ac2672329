"""Pictures of a merge, with matplotlib; importing this does not import it."""
