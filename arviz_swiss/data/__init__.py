"""ArviZ's containers and named variables: the one room that knows ArviZ."""

from arviz_swiss.data.layout import flatten, unflatten

__all__ = ["flatten", "unflatten"]
