"""The certificate's weights as a statistic of the draws, in the group where ArviZ keeps these."""

import xarray as xr

from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.merging.join import SAMPLED
from arviz_swiss.merging.records import NOT_CERTIFIED, read_certificate


def with_weights(groups: Groups, group: str) -> Groups:
    """Return groups with the certificate's log weights in `sample_stats`, if every draw has one.

    Whoever weighs draws by them must find a number at each: there is none for draws that were not
    weighed. Weights that are not to be trusted are not offered either.
    """
    groups = without_weights(groups)
    record = read_certificate(groups)
    if record is None or record.verdict.status == NOT_CERTIFIED or group not in SAMPLED:
        return groups
    log_weight = record.dataset["log_weight"].transpose(*containers.SAMPLE_DIMS)
    stats = groups.get(schema.SAMPLE_STATS, _no_stats(groups[group]))
    places = {}
    for dim in containers.SAMPLE_DIMS:
        weighed, wanted = log_weight.get_index(dim), stats.get_index(dim)
        if not wanted.is_unique or wanted.symmetric_difference(weighed).size:
            return groups
        places[dim] = weighed.get_indexer(wanted)
    meaning = schema.VARIABLES[schema.SAMPLE_STATS][schema.LOG_WEIGHT]
    values = log_weight.isel(places).values
    ours = {schema.LOG_WEIGHT: (containers.SAMPLE_DIMS, values, {"description": meaning})}
    return groups | {schema.SAMPLE_STATS: stats.assign(ours)}


def _no_stats(draws: xr.Dataset) -> xr.Dataset:
    """Return a group for statistics of these draws, without any."""
    dims = set(containers.SAMPLE_DIMS)
    return xr.Dataset(coords={k: v for k, v in draws.coords.items() if {*v.dims} <= dims})


def without_weights(groups: Groups) -> Groups:
    """Return groups without weights of draws that have changed since."""
    if schema.LOG_WEIGHT not in groups.get(schema.SAMPLE_STATS, ()):
        return dict(groups)
    stats = groups[schema.SAMPLE_STATS].drop_vars(schema.LOG_WEIGHT)
    if stats.data_vars:
        return groups | {schema.SAMPLE_STATS: stats}
    return {name: dataset for name, dataset in groups.items() if name != schema.SAMPLE_STATS}
