"""The moments of all batches in one frame: whether they fit together, and in which order."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from arviz_swiss.base import linalg
from arviz_swiss.base.effective import few_parameters, size_by_times
from arviz_swiss.base.gaussian import Glance, Moments, correction
from arviz_swiss.data import schema
from arviz_swiss.data.layout import layout_of, positions_of
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.batches import NO_BATCH, Batch
from arviz_swiss.merging.batches_without_draws import stand_in
from arviz_swiss.merging.estimate import Frame, check_constants, summarise_sets
from arviz_swiss.merging.labels import choose_labels
from arviz_swiss.merging.match import Matched, Roles, match_roles
from arviz_swiss.merging.moments import BatchMoments
from arviz_swiss.merging.space import WITHOUT_MODEL

# How many last dimensions a transform takes together; along others elements come in any order.
TAKEN = dict.fromkeys([*WITHOUT_MODEL, *WITHOUT_MODEL.values(), "interval"], 0)
TAKEN |= {"simplex": 1, "ordered": 1, "cholesky": 2, "cholesky_corr": 2}
# What must be the same in all batches, and what an error calls it.
ALIKE = {
    "group": "group",
    "covariance": "covariance",
    "space": "space",
    "has_model": "model",
}


class RecordedSpace:
    """The space of a merge as far as moments record it: no draw can be moved to it."""

    circular: Sequence[str] = ()
    dims: Mapping[str, tuple[str, ...]] = {}
    coords: Mapping[str, Any] = {}

    def __init__(self, name: str, transforms: Mapping[str, Any], computed: Sequence[str]):
        self.name, self.transforms = name, dict(transforms)
        self.deterministic_names = list(computed)

    def describe(self) -> str:
        """Return the transforms as text."""
        return json.dumps(self.transforms)


class Gathered(NamedTuple):
    """The batches without their draws, what was measured of each, in the order of the batches."""

    batches: list[Batch]
    measured: list[BatchMoments]

    def of(self, batches: Sequence[Batch]) -> "Gathered":
        """Return some of the batches with what was measured of them."""
        return Gathered(list(batches), [self.measured[batch.position] for batch in batches])


def gather(measured: Sequence[BatchMoments], labels: Sequence[str] | None) -> Gathered:
    """Return stand-ins for the batches, by their moments; refuse two of one label."""
    for key, noun in ALIKE.items():
        _check_alike(measured, key, noun)
    labels = labels or _labels(measured)
    batches = [
        stand_in(
            label,
            position,
            each.groups[schema.VARIABLES_OF_DRAWS][each.record["names"]],
            each.record["group"],
            each.record["facts"],
            each.file,
        )
        for position, (label, each) in enumerate(zip(labels, measured, strict=True))
    ]
    return Gathered(batches, list(measured))


def _labels(measured: Sequence[BatchMoments]) -> list[str]:
    seen: dict[str, int] = {}
    for position, each in enumerate(measured):
        first = seen.setdefault(each.label, position) if each.label else position
        if first != position:
            raise ValueError(
                f'the moments at positions {first} and {position} are both of batch "{each.label}"'
                ". Give each batch once; if they are of two batches, pass a mapping of label to "
                "moments, or moments(..., label=)."
            )
    # the files of the draws come before those of the moments
    files = [each.record["file"] for each in measured]
    if not all(files):
        files = [each.file for each in measured]
    return choose_labels([each.label for each in measured], files)


def _check_alike(measured: Sequence[BatchMoments], key: str, noun: str) -> None:
    values = [each.record[key] for each in measured]
    for position, value in enumerate(values):
        if value != values[0]:
            raise ValueError(
                f"{_called(measured, position)} was measured with {noun} {value!r}, "
                f"{_called(measured, 0)} with {values[0]!r}. Take the moments of all batches with "
                f"the same {noun}=."
            )


def _called(measured: Sequence[BatchMoments], position: int) -> str:
    each = measured[position]
    label = f' ("{each.label}")' if each.label else ""
    return f"batch {position}{label}" + (f", file {each.file}" if each.file else "")


def match_gathered(gathered: Gathered) -> Matched:
    """Match variables and labels of the batches; refuse other transforms, and elements apart."""
    records = [each.record for each in gathered.measured]
    roles = [Roles(record["names"], record["deterministic"]) for record in records]
    matched = match_roles(gathered.batches, roles)
    shared = set(matched.layout.names)
    for batch, record in zip(gathered.batches, records, strict=True):
        _check_transforms(gathered.batches[0], records[0], batch, record, shared)
    if apart := matched.local:
        raise ValueError(
            f"variable {', '.join(apart)}: its labels differ between the batches, so that each has "
            "its own, which is not merged. Take the moments again without it "
            f'(var_names="~{apart[0]}"), or say before that it is a batch\'s own: '
            f'idata.posterior.attrs["{schema.LOCAL}"] = "{",".join(apart)}".'
        )
    local = dict.fromkeys(name for record in records for name in record["local"])
    return matched._replace(local=list(local))


def shared_items(gathered: Gathered, key: str) -> list[str]:
    """Return what the records of all batches have under a key, in the order of the first."""
    first, *others = (each.record[key] for each in gathered.measured)
    return [item for item in first if all(item in other for other in others)]


def _check_transforms(
    first: Batch, known: Mapping, batch: Batch, record: Mapping, shared: set[str]
) -> None:
    for name in sorted(shared):
        here, there = (each["transforms"].get(name) for each in (record, known))
        if here != there:
            raise ValueError(
                f"{batch}, variable {name}: transform {here!r}, but {there!r} in {first}. Take the "
                "moments of all batches with the same transforms= and model=."
            )
        images, known_images = (each["probed"].get(name) for each in (record, known))
        if here is not None and not _are_same(images, known_images):
            raise ValueError(
                f"{batch}, variable {name}: its transform leads elsewhere than that of {first}, "
                "though both have one name: bounds or functions differ. Take the moments of all "
                "batches with the same transforms= and model=."
            )


def _are_same(images: Any, others: Any) -> bool:
    """Tell whether two transforms lead to the same values, whatever machine computed them."""
    here, there = (np.asarray(each, float) for each in (images, others))
    return here.shape == there.shape and np.allclose(here, there, rtol=1e-4, equal_nan=True)


def find_gathered_frame(gathered: Gathered, matched: Matched) -> Frame:
    """Return the frame that the first batch sets."""
    first = gathered.measured[0]
    names = matched.layout.names
    layout = layout_of(first.groups[schema.VARIABLES_OF_MERGE], names)
    # what no batch's model contradicts
    computed = shared_items(gathered, "computed")
    space: Any = RecordedSpace(first.record["space"], first.record["transforms"], computed)
    elements = first.statistics["element"].values.astype(str)
    labels = first.statistics["parameter"].values.astype(str)
    places = {label: place for place, label in enumerate(elements.tolist())}
    free = np.array([places[label] for label in labels.tolist()])
    owners = np.array(layout.owners())[free]
    constants = first.statistics["value"].values
    batch = matched.batches[0]
    return Frame(batch, matched.layout, space, layout, free, constants, labels, owners)


def moments_in(frame: Frame, batch: Batch, measured: BatchMoments) -> Moments:
    """Return one batch's moments in the order of the frame."""
    statistics = measured.statistics
    _check_order(frame, batch)
    elements = positions_of(frame.layout.labels(), statistics["element"].values.astype(str))
    if elements is None:
        raise ValueError(
            f"{batch}: its elements in the space of the merge are not those of {frame.first}. Take "
            "the moments of all batches with the same var_names, transforms and model."
        )
    _check_free(frame, batch, measured, elements)
    own = {label: at for at, label in enumerate(statistics["parameter"].values.astype(str))}
    places = np.array([own[label] for label in frame.labels])
    covariance = statistics["covariance"].values[np.ix_(places, places)]
    times, skewness, rhat = (
        statistics[name].values[places] for name in ("squares_time", "skewness", "rhat")
    )
    draws, effective = int(statistics["draws"]), float(statistics["effective_size"])
    try:
        precision = linalg.inverse(covariance)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{batch}: its covariance is not positive definite: the moments were changed or "
            "damaged. Take them again."
        ) from error
    if measured.record["covariance"] == "corrected":
        precision = precision * (correction(effective, places.size) or 1.0)
    else:
        effective = size_by_times(times[few_parameters(places.size)], draws)
    mean = statistics["mean"].values[places]
    return Moments(mean, covariance, precision, draws, effective, Glance(skewness, rhat))


def _check_order(frame: Frame, batch: Batch) -> None:
    """Refuse elements in another order, where they are not transformed each by itself."""
    for variable in frame.constrained.variables:
        transform = frame.space.transforms.get(variable.name)
        if transform is None:
            continue
        name = transform[0] if isinstance(transform, list) else transform
        count = len(variable.dims)
        taken = TAKEN.get(name, count) if isinstance(name, str) else count
        if dims := [dim for dim in variable.dims[count - taken :] if dim in batch.indexers]:
            raise ValueError(
                f"{batch}, variable {variable.name}: its labels along {', '.join(dims)} come in "
                f"another order than in {frame.first}, and its transform takes them together. "
                "Bring them into that order (idata.posterior.sel) and take the moments again."
            )


def _check_free(frame: Frame, batch: Batch, measured: BatchMoments, elements: np.ndarray) -> None:
    statistics = measured.statistics
    varies = np.isin(statistics["element"].values.astype(str)[elements], statistics["parameter"])
    check_constants(batch, ~varies, statistics["value"].values[elements], frame)


def find_prior(
    frame: Frame, gathered: Gathered, covariance: str
) -> tuple[Moments | None, np.ndarray]:
    """Return the moments and the draws of the prior that went along with the moments."""
    there = [
        (batch, each)
        for batch, each in zip(gathered.batches, gathered.measured, strict=True)
        if schema.PRIOR_DRAWS in each.groups
    ]
    given = [pair for pair in there if pair[1].record["prior_given"]]
    rows = [_prior_rows(frame, *pair) for pair in given or there]
    for (batch, _), other in zip(given, rows, strict=False):
        if not np.array_equal(other, rows[0]):
            raise ValueError(
                f"{batch} and {given[0][0]} were given other draws of the prior. Give the same to "
                "all batches, or to one."
            )
    if covariance == "own":
        raise ValueError(
            "covariance is your own function, which no plan can call for the draws of the prior. "
            'Sample "fractionated" or "inflated" batches, or choose another covariance.'
        )
    sets = [
        {
            variable.name: part[:, variable.columns].reshape(1, -1, *variable.shape)
            for variable in frame.layout.variables
        }
        for part in (rows[:1] if given else rows)
    ]
    batch = there[0][0]._replace(label="prior", position=NO_BATCH, file="")
    return summarise_sets(batch, sets, frame, covariance)


def has_prior(gathered: Gathered) -> bool:
    """Tell whether draws of the prior went along with any moments."""
    return any(schema.PRIOR_DRAWS in each.groups for each in gathered.measured)


def _prior_rows(frame: Frame, batch: Batch, measured: BatchMoments) -> np.ndarray:
    prior = measured.groups[schema.PRIOR_DRAWS]
    places = positions_of(frame.layout.labels(), prior["element"].values.astype(str))
    if places is None:
        missing = set(frame.layout.labels()) - set(prior["element"].values.astype(str).tolist())
        raise ValueError(f"{batch}: its draws of the prior lack {brief(sorted(missing))}.")
    return prior["draws"].values[:, places]
