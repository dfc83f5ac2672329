"""How many batches, and how many draws of each: the rule that `sample` goes by.

Every batch costs its warm-up and as many draws as its moments need, on its share of the rows: with
more batches the share is smaller and the draws are fewer, until they are no more than the moments
need. Beyond, more batches gain nothing but work for more cores, and cost accuracy that `refine`
must bring back.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pymc as pm

from arviz_swiss.checking.statistics import FEW_A_PARAMETER, FEW_EFFECTIVE
from arviz_swiss.correcting.propagation import LEAST_DRAWS
from arviz_swiss.parallel.partition import group_count, partition, row_count
from arviz_swiss.parallel.tables import Table, some_rows
from arviz_swiss.pymc import structure
from arviz_swiss.pymc.checking import PROBED_ROWS, build_probes
from arviz_swiss.pymc.coordinates import start_of

# Draws that the moments of a batch need, a parameter and at least, without `refine`, which mends
# what noise fewer leave.
MERGED, MERGED_LEAST = 100, 400
# Rows of a batch, a parameter and at least: fewer make it too unlike a Gaussian.
ROWS, LEAST_ROWS = 50, 200
# Groups of a batch that has variables of its own: fewer tell too little of what they share.
LEAST_GROUPS = 10


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
    groups: int | None = None,
) -> Sizes:
    """Choose the number of batches, unless it is given, and of draws of each.

    As many batches as share the `draws` that are wanted in all, each with no fewer than its moments
    need; not so many that a batch would have fewer than 50 rows a parameter, or 200; at least one
    for every worker, and as many for each; never fewer than two. Batches with variables of their
    own, of so many `groups` in all, have ten groups at least, and their scores need 320 draws.
    """
    needed = _needed_draws(parameters, refined, groups is not None)
    least_rows = max(ROWS * parameters, LEAST_ROWS)
    by_rows, by_groups = rows // least_rows, (groups or rows) // LEAST_GROUPS
    most = by_rows if groups is None else min(by_rows, by_groups)
    why = "as asked for"
    if batches is None:
        wanted = max(draws // needed, workers)
        batches = min(max(min(wanted, most), 2), max(groups or rows, 1))
        if batches > workers:
            batches -= batches % workers
        why = "by the draws that a batch needs"
        if wanted > max(most, 2):
            why = "by the rows of a batch" if most == by_rows else "by the groups of a batch"
        elif draws // needed < workers:
            why = "at least one a worker"
    each = math.ceil(max(draws / batches, needed) / chains)
    return Sizes(
        batches,
        each,
        f"{_many(batches, 'batch', 'batches')}, {why} ({_contents(rows, groups, batches)}, "
        f"{_many(each * chains, 'draw')}; {_many(parameters, 'parameter')} "
        f"{'needs' if parameters == 1 else 'need'} {needed} draws and {least_rows} rows"
        f"{'' if groups is None else f', and {LEAST_GROUPS} groups'}).",
    )


def _needed_draws(parameters: int, refined: bool, has_groups: bool) -> int:
    """Return how many draws the moments of a batch need, or its scores."""
    if not refined:
        return max(MERGED * parameters, MERGED_LEAST)
    least = LEAST_DRAWS if has_groups else 0
    return max(FEW_A_PARAMETER * parameters + FEW_EFFECTIVE, least)


def _contents(rows: int, groups: int | None, batches: int) -> str:
    """Return in words how much of the table a batch holds."""
    text = _many(round(rows / batches), "row")
    return text if groups is None else f"{text} of {_many(round(groups / batches), 'group')}"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


class Examined(NamedTuple):
    """What some rows tell: the number of shared parameters, and variables of one batch alone.

    Parameters are unconstrained: a simplex of three values has two. `local` are all variables of
    one batch; it `has_own` if these are more than missing outcomes, which ask for no other `kind`,
    and then there may be so many `groups`.
    """

    parameters: int
    local: tuple[str, ...]
    has_own: bool
    groups: int | None = None

    @property
    def kind(self) -> str:
        """What batches sample, unless the user says otherwise."""
        return "fractionated" if self.has_own else "inflated"


def examine(build: Callable[[Any], pm.Model], data: Any, groups: Any, stratify: Any) -> Examined:
    """Build the models of two small batches, and of both together, to see what they share."""
    table, rows = data, row_count(data)
    if isinstance(data, Table):
        data = some_rows(data, 2 * PROBED_ROWS, groups, seed=0)
        rows = row_count(data)
    # whole groups, however large they are
    batches = 2 if groups is not None else max(-(-rows // PROBED_ROWS), 2)
    batches = max(min(batches, rows), 1)
    indices = partition(data, batches, groups=groups, stratify=stratify, random_seed=0)[:2]
    probes = build_probes(build, data, {f"b{at}": index for at, index in enumerate(indices)})
    structures = [probe.structure for probe in probes]
    local = structure.find_local(*structures) if len(probes) > 1 else structures[0].imputed
    imputed = {name for each in structures for name in each.imputed}
    start = start_of(probes[0].model)
    parameters = sum(values.size for name, values in start.items() if name not in local)
    has_own = any(name not in imputed for name in local)
    count = group_count(table, groups) if has_own and groups is not None else None
    return Examined(max(parameters, 1), local, has_own, count)


def group_coords(data: Any, groups: Any, model: pm.Model) -> dict[str, Any]:
    """Return the order of the groups of a table that no model has all rows of, by dimension.

    It is that of the first batch: sorted, or as groups first occur.
    """
    if groups is None or not isinstance(data, Table):
        return {}
    labels = data.groups(groups).labels.to_pylist()
    known, coords = set(labels), {}
    for dim, values in model.coords.items():
        own = [value.item() if hasattr(value, "item") else value for value in values or ()]
        if own and known.issuperset(own):
            coords[dim] = sorted(labels) if own == sorted(own) else labels
    return coords
