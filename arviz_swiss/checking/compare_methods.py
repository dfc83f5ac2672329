"""compare_methods(): merge by several methods, and measure how they differ."""

import contextlib
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from arviz_swiss.checking.discrepancy import MEASURES, discrepancy, distances_from
from arviz_swiss.data import containers
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.data.progress import SOON, Bar, progress
from arviz_swiss.merging.merge import merge
from arviz_swiss.methods import METHODS, find


def compare_methods(
    idatas: Sequence[Any] | Mapping[str, Any],
    reference: Any = None,
    methods: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
    fractionated: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    measure: str = "iad",
    var_names: str | Sequence[str] | None = None,
    filter_vars: str | None = None,
    group: str = "posterior",
    coords: Mapping[str, Any] | None = None,
    progressbar: bool = True,
    **merge_options: Any,
) -> pd.DataFrame:
    """Merge by several methods and compare the results.

    Parameters
    ----------
    idatas : sequence, or mapping of label to batch
        The batches, as for `merge`: "inflated" sub-posteriors when `fractionated` is given too.
    reference : InferenceData, DataTree, Dataset, ..., optional
        Draws of the full posterior.
    methods : iterable of str, or mapping of str to dict, optional
        Which methods; a mapping gives each one's own options. When absent, all that can merge these
        batches by their draws alone; a warning names the others.
    fractionated : sequence, or mapping of label to batch, optional
        The same batches as "fractionated" sub-posteriors, for the methods that are made for those.
        Without them every method gets `idatas`, rescaled where it needs the other kind.
    measure : str, default "iad"
        Which distance between methods to give when there is no reference.
    var_names, filter_vars, group, coords
        What to merge and compare, as for `merge` and `discrepancy`.
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed: a bar over the methods
        while they merge, and one while they are compared, each where it takes more than a second.
    **merge_options
        Further arguments of `merge`, such as `powers`, `transforms` or `random_seed`.

    Returns
    -------
    DataFrame
        One row a method. With a reference: the measures of `discrepancy`, the seconds that the
        merge took, and the measures' noise floors. Without: the distance `measure` from each of
        the other methods, and the seconds. Where methods disagree, the posterior is hard to merge.

    Raises
    ------
    ValueError
        When a method or measure is unknown, or none of the methods can merge the batches.
    TypeError
        When `methods` are no names, or an option is none of the method's.

    See Also
    --------
    merge, discrepancy

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = [{"mu": rng.normal(size=(2, 500))} for _ in range(4)]
    >>> full = {"mu": rng.normal(size=(2, 500))}
    >>> names = ["swiss", "consensus", "average"]
    >>> table = az_swiss.compare_methods(batches, full, methods=names, kind="inflated")
    >>> table.index.tolist()
    ['swiss', 'consensus', 'average']
    >>> bool((table["iad"] < 0.1).all())
    True
    """
    options_of = _options_by_method(methods)
    # Every method goes through the batches.
    sets = [list(x) if isinstance(x, Iterator) else x for x in (idatas, fractionated)]
    if measure not in MEASURES:
        raise ValueError(f"unknown measure {measure!r}. Valid ones are {', '.join(MEASURES)}.")
    select = {"var_names": var_names, "filter_vars": filter_vars, "group": group}
    merged, seconds, failed = {}, {}, {}
    containers.native_container()  # the first merge shall not pay for importing ArviZ
    watched = partial(progress, show=progressbar, unit="method", delay=SOON)
    with _each_warning_once(), watched(len(options_of), "Merging") as bar:
        for name, options in options_of.items():
            bar.stage(name)
            batches, known = _batches_for(name, *sets)
            arguments = {**select, **merge_options, **known, **options}
            start = time.perf_counter()
            try:
                merged[name] = merge(batches, method=name, progressbar=False, **arguments)
            except (ValueError, np.linalg.LinAlgError) as error:
                # what nobody asked for by name, and others can merge, is no reason to give up
                if methods is not None or not merged:
                    raise
                failed[name] = str(error)
                continue
            seconds[name] = time.perf_counter() - start
            bar()
        bar.stage()
        bar.finish()
        if failed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            warnings.warn(f"left out of the comparison: {reasons}", MergeWarning, stacklevel=2)
    elements: dict[str, Any] = {"group": group, "coords": coords}
    distances = {}
    with watched(len(merged), "Comparing") as bar:
        if reference is None:
            table = _between(merged, measure, elements, bar)
            return table.assign(seconds=pd.Series(seconds))
        for name, posterior in merged.items():
            distances[name] = discrepancy(posterior, reference, **elements)
            bar()
    columns: dict[str, Any] = {
        column: {name: float(distance[column]) for name, distance in distances.items()}
        for column in (*MEASURES, *(f"{name}_floor" for name in MEASURES))
    }
    table = pd.DataFrame(columns).rename_axis("method")
    table.insert(len(MEASURES), "seconds", pd.Series(seconds))
    return table


def _options_by_method(methods: Any) -> dict[str, Mapping[str, Any]]:
    if methods is None:
        return {name: {} for name, each in METHODS.items() if each.makes != "product"}
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Iterable):
        raise TypeError(f"methods must be names of methods, or a mapping, got {methods!r}.")
    options = dict(methods) if isinstance(methods, Mapping) else {name: {} for name in methods}
    for name in options:
        find(name)
    if not options:
        raise ValueError("compare_methods needs at least one method, got none.")
    return options


def _batches_for(name: str, idatas: Any, fractionated: Any) -> tuple[Any, dict[str, Any]]:
    """Return the set of batches that the method gets, and what is known of it."""
    if fractionated is None:
        return idatas, {}
    if find(name).expects == "inflated":
        return idatas, {"kind": "inflated"}
    return fractionated, {"kind": "fractionated", "powers": None}


def _between(
    merged: Mapping[str, Any], measure: str, elements: Mapping[str, Any], bar: Bar
) -> pd.DataFrame:
    """Return the distances of all pairs: of the one measure, and without noise floors."""
    names = list(merged)
    table = pd.DataFrame(0.0, index=pd.Index(names, name="method"), columns=names)
    for position, name in enumerate(names):
        # Neither is the truth: the method that was asked for first stands in for the reference.
        later = {other: merged[other] for other in names[position + 1 :]}
        for other, distance in distances_from(merged[name], later, measure, **elements).items():
            table.loc[name, other] = table.loc[other, name] = distance
        bar()
    return table


@contextlib.contextmanager
def _each_warning_once() -> Iterator[None]:
    """Give each distinct warning of all merges once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message, category in dict.fromkeys((str(w.message), w.category) for w in caught):
        warnings.warn(message, category, stacklevel=4)
