"""Whether the user's function uses the rows that it is given, or a table found elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from arviz_swiss.parallel.frames import column_arrays, is_frame
from arviz_swiss.parallel.store import fingerprint
from arviz_swiss.pymc.graphs import arrays_of
from arviz_swiss.pymc.observed import observed_values

# So many distinct values do not agree by chance.
DISTINCT = 10


def check_uses_batch(models: Sequence[pm.Model], batches: Sequence[Any], rows: int) -> None:
    """Refuse a function whose models, of two batches and of both together, do not follow the rows.

    An observed variable is suspect if it has as many entries as all batches have rows, and the same
    in all models; if all three models hold the same data; or if the first entries of all observed
    variables agree although no column of the batches does.
    """
    observed = [observed_values(model) for model in models]
    same = [
        name
        for name, values in observed[0].items()
        if all(name in other and np.array_equal(other[name], values) for other in observed[1:])
    ]
    whole = [name for name in same if observed[0][name].shape[:1] == (rows,)]
    if whole:
        _accuse(whole, f"has {rows} entries, those of all batches, in the model of every batch")
    if len(same) == len(observed[0]) and _same_data(models):
        _accuse(same, "and all other data are the same in the models of two batches and of both")
    if _same_beginnings(observed) and not _common_column(*batches[:2]):
        _accuse(list(observed[0]), "begins with the same values in two batches of other rows")


def _accuse(names: Sequence[str], how: str) -> None:
    raise ValueError(
        f"build does not use the batch it is given: observed {', '.join(names)} {how}. Every batch "
        "would count rows that are not its own, and the merged posterior would be too narrow. Take "
        "all data from the argument of build, not from a variable outside it."
    )


def _same_data(models: Sequence[pm.Model]) -> bool:
    """Tell whether all that can be seen of the models is the same, a likelihood's data included."""
    seen = []
    for model in models:
        graphs = [*model.logp(sum=False, jacobian=False), *model.deterministics]
        held = sorted(map(fingerprint, [*arrays_of(graphs), *arrays_of(model.basic_RVs)]))
        seen.append((held, fingerprint(model.coords), _own_operations(graphs)))
    return all(other == seen[0] for other in seen[1:])


def _own_operations(graphs: Sequence[Variable]) -> list[Any]:
    """Return operations of neither PyTensor nor PyMC, which may hold data that nobody sees."""
    nodes = {variable.owner: None for variable in ancestors(graphs) if variable.owner is not None}
    known = ("pytensor", "pymc")
    return [node.op for node in nodes if type(node.op).__module__.split(".")[0] not in known]


def _same_beginnings(observed: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Tell whether all variables begin alike everywhere, in values that are no coincidence."""
    varied = False
    for name in observed[0]:
        values = [each.get(name, np.zeros(0)) for each in observed]
        if any(value.ndim == 0 for value in values):
            return False
        length = min(map(len, values))
        first = values[0][:length]
        if any(not np.array_equal(first, value[:length]) for value in values[1:]):
            return False
        varied |= np.unique(first).size >= DISTINCT
    return varied


def _common_column(first: Any, second: Any) -> bool:
    """Tell whether any column of two tables begins with the same values."""
    for column, other in zip(_columns(first), _columns(second), strict=False):
        length = min(len(column), len(other))
        if fingerprint(column[:length]) == fingerprint(other[:length]):
            return True
    return False


def _columns(data: Any) -> list[np.ndarray]:
    if is_frame(data):
        return list(column_arrays(data))
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        return [column for name in data for column in _columns(data[name])]
    values = np.asarray(data)
    return [values] if values.ndim < 2 else list(values.reshape(len(values), -1).T)
