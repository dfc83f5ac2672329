"""How many batches, and how many draws of each: the rule that `sample` goes by.

Every batch costs its warm-up and as many draws as its moments need, on its share of the rows: with
more batches the share is smaller and the draws are fewer, until they are no more than the moments
need. Beyond, more batches gain nothing but work for more cores, and cost accuracy that `refine`
must bring back.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from arviz_swiss.parallel.partition import row_count, take
from arviz_swiss.pymc.graphs import shapes_of
from arviz_swiss.pymc.worker import build_model

# Draws that the moments of a batch need: a parameter, and beside them if `refine` follows, which
# mends what noise they have left, or at least if it does not.
REFINED, REFINED_BESIDE = 5, 100
MERGED, MERGED_LEAST = 100, 400
# Rows of a batch, a parameter and at least: fewer make it too unlike a Gaussian.
ROWS, LEAST_ROWS = 50, 200
# A batch of rows by which the parameters are counted.
PROBED_ROWS = 10_000


class Sizes(NamedTuple):
    """Numbers of batches, and of draws of each of the chains of a batch; why, as a sentence."""

    batches: int
    draws: int
    rule: str


def choose_sizes(
    rows: int,
    parameters: int,
    *,
    batches: int | None,
    draws: int,
    chains: int,
    refined: bool,
    workers: int,
) -> Sizes:
    """Choose the number of batches, unless it is given, and of draws of each.

    As many batches as share the `draws` that are wanted in all, each with no fewer than its moments
    need; not so many that a batch would have fewer than 50 rows a parameter, or 200; at least one
    for every worker, and as many for each; never fewer than two.
    """
    needed = (
        REFINED * parameters + REFINED_BESIDE if refined else max(MERGED * parameters, MERGED_LEAST)
    )
    most = max(rows // max(ROWS * parameters, LEAST_ROWS), 2)
    rule = f"{batches} batches, as asked for"
    if batches is None:
        wanted = max(draws // needed, workers)
        batches = max(min(wanted, most), 2)
        if batches > workers:
            batches -= batches % workers
        rule = f"{batches} batches, by the draws that a batch needs"
        if wanted > most:
            rule = f"{batches} batches, by the rows of a batch"
        elif draws // needed < workers:
            rule = f"{batches} batches, at least one a worker"
    each = math.ceil(max(draws / batches, needed) / chains)
    return Sizes(
        batches,
        each,
        f"{rule} ({rows / batches:.0f} rows, {each * chains} draws; {parameters} parameters need "
        f"{needed} draws and {max(ROWS * parameters, LEAST_ROWS)} rows).",
    )


def count_parameters(build: Callable[[Any], pm.Model], data: Any, seed: int) -> int:
    """Count the parameters of the model, by some of the rows at random."""
    rows = row_count(data)
    few = np.sort(np.random.default_rng(seed).permutation(rows)[:PROBED_ROWS])
    model = build_model(build, take(data, few), f"{few.size} rows at random")
    values = {rv.name: model.rvs_to_values[rv] for rv in model.free_RVs}
    return max(sum(math.prod(shape) for shape in shapes_of(values).values()), 1)
