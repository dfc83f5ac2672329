"""refine(): remove the error of a merge by gradient rounds over the batches' densities."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.base import gaussian, weights
from arviz_swiss.base.gaussian import Gaussian, Round
from arviz_swiss.base.linalg import AffineMap, embed
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.belonging import advice, check_rows, check_shared
from arviz_swiss.correcting.densities import (
    Evaluate,
    EvaluationFailed,
    MergeSpace,
    NotFinite,
    OutOfBounds,
    Scores,
    batch_scores,
    evaluating,
    full_score,
    match_densities,
)
from arviz_swiss.correcting.gradients import PAIRS, curved_upwards, wrong_gradients
from arviz_swiss.correcting.rounds import (
    Rounds,
    are_half,
    doubt_counts,
    doubt_steps,
    doubt_undone,
    recorded,
    settled,
)
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import Groups
from arviz_swiss.data.layout import layout_of, move
from arviz_swiss.data.messages import MergeWarning
from arviz_swiss.merging.elements import as_given
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.models import is_model
from arviz_swiss.merging.pack import labelled
from arviz_swiss.merging.records import count_rounds
from arviz_swiss.merging.space import Space
from arviz_swiss.parallel.progress import Bar, progress

# Fewer points a parameter leave too much noise in the precision.
POINTS_PER_PARAMETER = 3
# Groups with draws that stay valid when the merged draws move.
STILL_VALID = ("prior", "prior_predictive", "sample_stats", "sample_stats_prior")


def refine(
    merged: Any,
    densities: Sequence[Any] | Mapping[str, Any],
    *,
    rounds: int = 5,
    points: int = 200,
    executor: Any = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
    progressbar: bool = True,
) -> Any:
    r"""Remove the error of a merge: a few gradients of the batches' densities.

    SwISS is exact for Gaussian sub-posteriors. For others the merged mean can be off by more than a
    posterior standard deviation when batches are small. Each round asks all batches for the
    gradient of their log density at some merged draws, corrects the mean and the covariance by
    what it says, and maps all draws to the new moments. Their shape is kept.

    Parameters
    ----------
    merged : InferenceData or DataTree
        As `merge` returned it, by any method.
    densities : sequence, or mapping of batch label to density
        One a batch: the plain PyMC model of the batch (not a tempered one), or any object with the
        methods ``log_prior(x)``, ``log_likelihood(x)``, ``grad_log_prior(x)`` and
        ``grad_log_likelihood(x)``. They take points as a (points, parameters) array, in the space
        of the merge and in the order of ``merged["swiss_transform"]["parameter"]``, and return
        (points,) arrays, the gradients (points, parameters). No powers.
    rounds : int, default 5
        At most so many; fewer once mean and precision change by no more than Monte Carlo error.
    points : int, default 200
        Gradients a round and batch, at least; never fewer than three for each parameter.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where to evaluate the densities; this process when absent. Each worker keeps the densities
        it was sent: afterwards only points and gradients travel.
    random_seed : int or Generator, optional
        Seed of the choice of points.
    group : str, default "posterior"
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any: a merged object cannot hold them.
    model : pymc.Model, optional
        The model that you merged with, if any, likewise; the first of `densities` when absent.
    progressbar : bool, default True
        Show progress, if tqdm is installed.

    Returns
    -------
    InferenceData or DataTree
        A new merged object. Its group `swiss_transform` holds each round's moments, the length of
        its `step` in Mahalanobis distance with its Monte Carlo error, and the range of the new
        precision's eigenvalues seen from the old, along a dimension `round`, where round 0 is the
        merge. Rounds that led away from the posterior are not `taken`: the merge stays as it was.
        In `swiss_diagnostics`, `shift` and `sd_ratio` are about the refined posterior, all else
        about the merge. Groups that belong to the draws before, such as predictions and a
        certificate, are left out.

    Raises
    ------
    ValueError
        When the batches have latent variables of their own, their priors differ, a density is not
        finite, or densities are not of their batches' own rows, such as all of the full data.
    TypeError
        When a density lacks methods.

    Warns
    -----
    MergeWarning
        When the steps do not shrink, or have not become short; when the merge is left as it was,
        since a gradient is wrong or the rounds led away; when the densities hold the data as often
        as there are batches.

    See Also
    --------
    certify : say how far the result can be trusted
    subposteriors : undo all rounds and the merge

    Notes
    -----
    With the full posterior's score :math:`s` at points x, and the residual
    :math:`R = s + V^{-1}(x - \mu)`, regressed on the points as :math:`\bar R + M (x - \mu)`,

    .. math:: V_{new}^{-1} = V^{-1} - M, \quad \mu_{new} = \mu + V_{new} \bar R,

    :math:`M` made symmetric, and its effect on the precision limited to factors of .2 to 5 a round.
    One round is exact for a Gaussian posterior.

    Examples
    --------
    Counts with a Gamma prior, merged on the log scale: the posterior mean of the rate is known.

    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> class Counts:
    ...     def __init__(self, total, size):
    ...         self.total, self.size = total, size
    ...     def log_prior(self, x):
    ...         return x[:, 0] - np.exp(x[:, 0])
    ...     def log_likelihood(self, x):
    ...         return self.total * x[:, 0] - self.size * np.exp(x[:, 0])
    ...     def grad_log_prior(self, x):
    ...         return 1 - np.exp(x)
    ...     def grad_log_likelihood(self, x):
    ...         return self.total - self.size * np.exp(x)
    >>> rng = np.random.default_rng(1)
    >>> densities = [Counts(total, 10) for total in (3, 8, 4, 7)]
    >>> batches = [
    ...     {"rate": rng.gamma(1 + 4 * d.total, 1 / (1 + 4 * d.size), size=(4, 500))}
    ...     for d in densities
    ... ]
    >>> merged = az_swiss.merge(batches, transforms={"rate": "log"}, kind="inflated")
    >>> refined = az_swiss.refine(merged, densities, random_seed=1, progressbar=False)
    >>> exact = (1 + 22) / (1 + 40)
    >>> [bool(abs(m["posterior"]["rate"].mean() / exact - 1) < 0.02) for m in (merged, refined)]
    [False, True]
    """
    opened = open_merged(merged, group)
    check_shared(opened)
    matched = match_densities(densities, opened.labels, opened.kind)
    check_rows(matched, opened)
    space = opened.space(transforms, model or first_model(matched))
    _check_counts(opened, rounds=rounds, points=points)
    rng = generator(random_seed)
    start = opened.present_moments
    # PyMC makes its gradients itself
    written = [label for label, density in matched.items() if not is_model(density)]
    with (
        progress(
            rounds * len(matched) + len(written), "Refining", progressbar, unit="density"
        ) as bar,
        evaluating(matched, space_for_models(opened), executor, bar) as evaluate,
    ):
        wrong = wrong_gradients(evaluate, written, _some_draws(opened, 2 * PAIRS))
        done = _rounds(opened, evaluate, start, 1 if wrong else rounds, points, rng, bar)
        bar.finish()
    if undone := doubt_undone(done, wrong):
        warnings.warn(f"{undone.what}. {undone.remedy}", MergeWarning, stacklevel=2)
        maps = recorded(opened.maps, start, done.history, undone)
        groups = {**containers.read(merged, group).groups, schema.TRANSFORM: maps}
        return containers.build(groups, opened.container, containers.root_attrs(merged))
    pooled = opened.maps["pooled_covariance"].transpose("parameter", "parameter_bis").values
    doubt = doubt_counts(done, pooled, advice(opened)) or doubt_steps(done)
    if doubt is not None:
        warnings.warn(f"{doubt.what}. {doubt.remedy}", MergeWarning, stacklevel=2)
    last = done.history[-1].moments
    groups = _moved(opened, space, start, last)
    groups[schema.TRANSFORM] = recorded(opened.maps, start, done.history, doubt)
    if schema.DIAGNOSTICS in groups:
        groups[schema.DIAGNOSTICS] = _seen_from(last, opened)
    groups = as_given(groups, containers.read(merged, group).groups)
    return containers.build(groups, opened.container, containers.root_attrs(merged))


def first_model(densities: Mapping[str, Any]) -> Any:
    """Return the first density if it is a PyMC model, else None."""
    first = next(iter(densities.values()))
    return first if is_model(first) else None


def space_for_models(opened: Merged, examples: int = 3) -> MergeSpace:
    """Return what PyMC models must know of the space of the merge."""
    few = slice(0, examples)
    names = opened.layout.names
    unconstrained = [array[0, few] for array in opened.arrays]
    return MergeSpace(
        opened.layout,
        layout_of(opened.draws, names),
        tuple(opened.transformed),
        opened.free,
        np.concatenate([array[0, 0].ravel() for array in opened.arrays]).astype(float),
        {
            name: opened.draws[name].transpose(*containers.SAMPLE_DIMS, ...).values[0, few]
            for name in names
        },
        dict(zip(names, unconstrained, strict=True)),
    )


def _check_counts(opened: Merged, **counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    chains, length = opened.sizes
    if chains * length < opened.free.size + 2:
        raise ValueError(
            f"{chains * length} merged draws for {opened.free.size} parameters: refine needs more "
            "draws than parameters."
        )


def _some_draws(opened: Merged, count: int) -> np.ndarray:
    chains, length = opened.sizes
    positions = np.linspace(0, chains * length - 1, count).astype(int)
    return opened.rows(*np.divmod(positions, length))


def _rounds(
    opened: Merged,
    evaluate: Evaluate,
    start: Gaussian,
    rounds: int,
    points: int,
    rng: np.random.Generator,
    bar: Bar,
) -> Rounds:
    """Return the rounds: each at merged draws as the rounds before have moved them."""
    chains, length = opened.sizes
    parameters = opened.parameters
    count = max(points, POINTS_PER_PARAMETER * start.mean.size)
    history: list[Round] = []
    moments, upwards = start, []
    while len(history) < rounds and not are_half(upwards, opened.labels):
        bar.stage(f"round {len(history) + 1} of at most {rounds}")
        chosen = weights.spread_evenly(chains * length, count, rng)
        draws = opened.rows(*np.divmod(chosen, length))
        at = (draws - start.mean) @ gaussian.map_between(start, moments).T + moments.mean
        try:
            scores = batch_scores(evaluate, opened.labels, at, parameters)
            history.append(gaussian.gradient_round(at, full_score(scores), moments))
        except (NotFinite, OutOfBounds, EvaluationFailed, np.linalg.LinAlgError) as error:
            if not history:
                raise
            return Rounds(history, opened.labels, upwards=upwards, failure=str(error))
        if moments is start:
            upwards = curved_upwards(at, scores.likelihoods, start)
        moments = history[-1].moments
        if settled(history):
            break
    bar.stage(count_rounds(len(history)))
    return Rounds(history, opened.labels, _are_alike(scores), upwards)


def _are_alike(scores: Scores) -> bool:
    first, *others = scores.likelihoods.values()
    scale = np.abs(first).max()
    return all(np.allclose(first, other, rtol=1e-6, atol=1e-9 * scale) for other in others)


def _moved(opened: Merged, space: Space, old: Gaussian, new: Gaussian) -> Groups:
    """Return the groups with all draws mapped from the old moments to the new."""
    affine = AffineMap(gaussian.map_between(old, new), old.mean, new.mean)
    rows = opened.matrices()
    constants = np.concatenate([matrix[0] for matrix in rows]).astype(float)
    out = [np.empty_like(matrix) for matrix in rows]
    move(rows, opened.layout, embed(affine, opened.free, constants), out)
    unconstrained = {
        name: matrix.reshape(array.shape)
        for name, matrix, array in zip(opened.layout.names, out, opened.arrays, strict=True)
    }
    constrained = space.backward(unconstrained) if opened.transformed else unconstrained
    groups = {
        name: dataset
        for name, dataset in opened.groups.items()
        if name in STILL_VALID or "draw" not in dataset.dims
    }
    posterior = _replaced(opened.draws, constrained)
    computed = labelled(space, space.deterministics(constrained))
    posterior = posterior.assign({name: computed[name] for name in computed if name in posterior})
    groups[opened.group] = posterior.assign_attrs(opened.draws.attrs)
    if opened.transformed:
        before = opened.groups[schema.unconstrained(opened.group)]
        moved = {name: unconstrained[name] for name in opened.transformed}
        groups[schema.unconstrained(opened.group)] = _replaced(before, moved)
    return {name: groups[name] for name in opened.groups if name in groups}


def _seen_from(moments: Gaussian, opened: Merged) -> xr.Dataset:
    """Return the diagnostics with the batches' shifts and sds seen from the refined posterior."""
    maps, spread = opened.maps, np.sqrt(np.diag(moments.covariance))
    by_batch = {
        "shift": (maps["mean"].values - moments.mean) / spread,
        "sd_ratio": np.sqrt(np.einsum("bii->bi", maps["covariance"].values)) / spread,
    }
    diagnostics = opened.groups[schema.DIAGNOSTICS]
    return diagnostics.assign(
        {name: diagnostics[name].copy(data=values) for name, values in by_batch.items()}
    )


def _replaced(dataset: xr.Dataset, arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return the dataset with new values, of dimensions (chain, draw, ...), for some variables."""
    new = {}
    for name, values in arrays.items():
        if name in dataset:
            old = dataset[name]
            ordered = old.transpose(*containers.SAMPLE_DIMS, ...)
            new[name] = ordered.copy(data=values.astype(old.dtype)).transpose(*old.dims)
    return dataset.assign(new)
