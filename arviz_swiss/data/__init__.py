"""ArviZ's containers and named variables: the one room that knows ArviZ."""
