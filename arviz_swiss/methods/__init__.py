"""The ways of merging, by name.

A method is one function in one of these modules, registered with one line. One that moves each
batch's draws returns one `AffineMap` a batch::

    @register("name", expects="inflated")
    def name(given): ...

One that adds the batches' draws, each mapped, returns the maps as well, and never holds more than
one batch::

    @register("name", expects="fractionated", makes="terms")
    def name(given): ...

One that makes new draws of all batches' draws gets these, an array with dimensions (batch, chain,
draw, parameter), and returns an array (chain, draw, parameter)::

    @register("name", expects="fractionated", makes="draws")
    def name(given, draws, rng): ...

One that makes new draws of all batches' draws and log densities gets these as they were sampled,
the shares with which log densities add up to that of the full posterior, and the batches' labels;
it returns a `density_product.Product`::

    @register("name", expects="fractionated", makes="product")
    def name(given, draws, log_densities, shares, labels, rng): ...

`given` holds the batches' moments, the pooled moments and weights (`registry.Given`). All is in the
space of the merge and of the kind that the method expects. Keyword-only arguments become options of
``merge(method="name", option=...)``.
"""

from arviz_swiss.methods.registry import METHODS, Given, Method, check_options, find, register

# In the order in which errors and tables list the methods.
from arviz_swiss.methods import moments, averages, kernel, density_product  # isort: skip

__all__ = [
    "METHODS",
    "Given",
    "Method",
    "averages",
    "check_options",
    "density_product",
    "find",
    "kernel",
    "moments",
    "register",
]
