"""refine(): remove the error of a merge by gradient rounds over the batches' densities."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss import containers, kernels
from arviz_swiss.containers import Groups
from arviz_swiss.densities import (
    Evaluate,
    MergeSpace,
    evaluating,
    full_scores,
    is_model,
    match_densities,
)
from arviz_swiss.kernels import Gaussian, Round
from arviz_swiss.maps import AffineMap, embed, move
from arviz_swiss.merged import (
    Merged,
    all_rows,
    check_shared,
    free_rows,
    open_merged,
    present_moments,
    space_of,
)
from arviz_swiss.progress import progress
from arviz_swiss.seeds import generator
from arviz_swiss.spaces import Space
from arviz_swiss.warnings import MergeWarning

# Fewer points a parameter leave too much noise in the precision.
POINTS_PER_PARAMETER = 3
# Groups with draws that stay valid when the merged draws move.
STILL_VALID = ("prior", "prior_predictive", "sample_stats", "sample_stats_prior")
# A change of so many errors may be noise.
NOISE = 2.0
# Below this there is nothing but rounding.
NEGLIGIBLE = 1e-7
# In posterior sds: the step after a longer one would be worth taking.
UNFINISHED = 0.25


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
        merge. In `swiss_diagnostics`, `shift` and `sd_ratio` are about the refined posterior, all
        else about the merge. Groups that belong to the draws before, such as predictions and a
        certificate, are left out.

    Raises
    ------
    ValueError
        When the batches have latent variables of their own, their priors differ, or a density is
        not finite.
    TypeError
        When a density lacks methods.

    Warns
    -----
    MergeWarning
        When the steps do not shrink, or have not become short.

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
    >>> merged = az_swiss.merge(batches, transforms={"rate": "log"})
    >>> refined = az_swiss.refine(merged, densities, random_seed=1, progressbar=False)
    >>> exact = (1 + 22) / (1 + 40)
    >>> [bool(abs(m["posterior"]["rate"].mean() / exact - 1) < 0.02) for m in (merged, refined)]
    [False, True]
    """
    opened = open_merged(merged, group)
    check_shared(opened)
    matched = match_densities(densities, opened.labels, opened.draws.attrs.get("swiss_kind", ""))
    space = space_of(opened.groups, group, transforms, model or first_model(matched))
    _check_counts(opened, rounds=rounds, points=points)
    rng = generator(random_seed)
    start = present_moments(opened)
    with (
        progress(rounds * len(matched), "Refining", progressbar) as advance,
        evaluating(matched, space_for_models(opened), executor, advance) as evaluate,
    ):
        history = _rounds(opened, evaluate, start, rounds, points, rng)
    _warn_of_steps(history)
    groups = _moved(opened, space, start, history[-1].moments)
    groups["swiss_transform"] = _recorded(opened.maps, start, history)
    if "swiss_diagnostics" in groups:
        groups["swiss_diagnostics"] = _seen_from(history[-1].moments, opened)
    return containers.build(groups, opened.container, containers.root_attrs(merged))


def refinement(groups: Groups) -> str:
    """Say in words what rounds of `refine` did to a merged object; nothing if there were none."""
    maps = groups["swiss_transform"]
    if "round" not in maps.dims:
        return ""
    steps, error = maps["step"].values[1:], float(maps["step_error"][-1])
    shown = ", ".join(f"{step:.2g}" for step in steps)
    rounds = "1 round" if steps.size == 1 else f"{steps.size} rounds"
    return f"Refined in {rounds}, by {shown} posterior sds (the last with an error of {error:.2g})."


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


def _rounds(
    opened: Merged,
    evaluate: Evaluate,
    start: Gaussian,
    rounds: int,
    points: int,
    rng: np.random.Generator,
) -> list[Round]:
    """Return the rounds: each at merged draws as the rounds before have moved them."""
    chains, length = opened.sizes
    parameters = opened.maps["parameter"].values.astype(str)
    count = max(points, POINTS_PER_PARAMETER * start.mean.size)
    history: list[Round] = []
    moments = start
    while len(history) < rounds:
        chosen = kernels.spread_evenly(chains * length, count, rng)
        draws = free_rows(opened, *np.divmod(chosen, length))
        at = (draws - start.mean) @ kernels.map_between(start, moments).T + moments.mean
        scores = full_scores(evaluate, opened.labels, at, parameters)
        history.append(kernels.gradient_round(at, scores, moments))
        moments = history[-1].moments
        if _settled(history):
            break
    return history


def _settled(history: Sequence[Round]) -> bool:
    """Tell whether the last round changed nothing that noise could not have: mean and precision.

    A step has the noise of where it starts, that is of the round before, and of where it ends. Its
    length is then about the error itself, half of the time beyond it.
    """
    last = history[-1]
    step = NOISE * np.hypot.reduce([one.step_error for one in history[-2:]])
    change = NOISE * np.hypot.reduce([one.change_error for one in history[-2:]])
    return last.step <= max(step, NEGLIGIBLE) and last.change <= max(change, NEGLIGIBLE)


def _warn_of_steps(history: Sequence[Round]) -> None:
    """Warn unless the last step was small, or the smallest of all, or nothing but noise."""
    why = _unsettled(history)
    if why:
        steps = ", ".join(f"{one.step:.3g}" for one in history)
        warnings.warn(
            f"{why}: {steps} posterior sds, the last with an error of "
            f"{history[-1].step_error:.2g}. The posterior is far from Gaussian or from the merged "
            "draws: do not trust the result before certify does. Refine it again, with more points "
            "or rounds, or merge fewer and larger batches.",
            MergeWarning,
            stacklevel=3,
        )


def _unsettled(history: Sequence[Round]) -> str:
    """Say why the last step may not have led to the posterior; nothing if there is no reason."""
    last = history[-1]
    # steps that may be noise need not shrink
    if _settled(history) or last.step <= max(5 * last.step_error, NEGLIGIBLE):
        return ""
    if last.step >= min((one.step for one in history[:-1]), default=np.inf):
        return "the steps of refine do not shrink"
    low, high = kernels.CLIP
    if last.eigenvalues[0] <= low or last.eigenvalues[-1] >= high:
        return "refine could not change the covariance as far as it had to, in steps of"
    # where the score is linear, there is no noise, and one step leads all the way
    if last.step > UNFINISHED and last.step_error > NEGLIGIBLE:
        return "refine ended while its steps were still long"
    return ""


def _moved(opened: Merged, space: Space, old: Gaussian, new: Gaussian) -> Groups:
    """Return the groups with all draws mapped from the old moments to the new."""
    affine = AffineMap(kernels.map_between(old, new), old.mean, new.mean)
    rows = all_rows(opened)
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
    posterior = _replaced(posterior, space.deterministics(constrained))
    groups[opened.group] = posterior.assign_attrs(opened.draws.attrs)
    if opened.transformed:
        before = opened.groups[f"unconstrained_{opened.group}"]
        moved = {name: unconstrained[name] for name in opened.transformed}
        groups[f"unconstrained_{opened.group}"] = _replaced(before, moved)
    return {name: groups[name] for name in opened.groups if name in groups}


def _seen_from(moments: Gaussian, opened: Merged) -> xr.Dataset:
    """Return the diagnostics with the batches' shifts and sds seen from the refined posterior."""
    maps, spread = opened.maps, np.sqrt(np.diag(moments.covariance))
    by_batch = {
        "shift": (maps["mean"].values - moments.mean) / spread,
        "sd_ratio": np.sqrt(np.einsum("bii->bi", maps["covariance"].values)) / spread,
    }
    diagnostics = opened.groups["swiss_diagnostics"]
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


def _recorded(maps: xr.Dataset, start: Gaussian, history: Sequence[Round]) -> xr.Dataset:
    """Return the group `swiss_transform` with the new maps, moments, and all rounds."""
    last = history[-1].moments
    scale = kernels.map_between(start, last)
    square = ("parameter", "parameter_bis")
    new: dict[str, Any] = {
        "pooled_mean": ("parameter", last.mean),
        "pooled_covariance": (square, last.covariance),
    }
    if "scale" in maps:
        targets = maps["target"].transpose("batch", "parameter").values
        scales = maps["scale"].transpose("batch", *square).values
        new["scale"] = (("batch", *square), scale @ scales)
        new["target"] = (("batch", "parameter"), (targets - start.mean) @ scale.T + last.mean)
    before = maps[[name for name in maps.data_vars if "round" in maps[name].dims]]
    rounds = _round_records(start, history)
    if before.data_vars:
        first = int(before["round"][-1])
        later = rounds.isel(round=slice(1, None))
        rounds = xr.concat([before, later.assign_coords(round=later["round"] + first)], "round")
    kept = maps.drop_dims("round", errors="ignore").drop_vars(list(new))
    return kept.assign(new).merge(rounds, join="exact", compat="override")


def _round_records(start: Gaussian, history: Sequence[Round]) -> xr.Dataset:
    moments = [start, *(one.moments for one in history)]
    nothing = [np.nan]
    ranges = [[1.0, 1.0], *([one.eigenvalues[0], one.eigenvalues[-1]] for one in history)]
    described = {
        "round_mean": (("round", "parameter"), [m.mean for m in moments]),
        "round_covariance": (
            ("round", "parameter", "parameter_bis"),
            [m.covariance for m in moments],
        ),
        "step": ("round", nothing + [one.step for one in history]),
        "step_error": ("round", nothing + [one.step_error for one in history]),
        "eigenvalue_range": (("round", "bound"), ranges),
    }
    coords = {"round": np.arange(len(moments)), "bound": np.array(["low", "high"])}
    return xr.Dataset({k: (dims, np.array(v)) for k, (dims, v) in described.items()}, coords=coords)
