"""From models of batches with local variables to a merged object, by expectation propagation."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base.gaussian import Gaussian, gaussian, permuted
from arviz_swiss.base.hmc import CHAINS, WARMUP
from arviz_swiss.base.sites import LEAST, MOST
from arviz_swiss.correcting.batch_model import BatchModel, opened
from arviz_swiss.correcting.densities import JointSpace
from arviz_swiss.correcting.ep_rounds import Effort, Propagated, SampleAll, propagate
from arviz_swiss.correcting.evaluation import Evaluate, EvaluationFailed, Request, evaluating
from arviz_swiss.correcting.full_posterior import check_same_prior
from arviz_swiss.correcting.lines import doubtful_positions
from arviz_swiss.correcting.redraw import record, redraw
from arviz_swiss.correcting.rounds import Rounds, doubt_steps, with_rounds
from arviz_swiss.correcting.tilted import Tilt, Tilted
from arviz_swiss.data import containers, schema
from arviz_swiss.data.containers import SAMPLE_DIMS, Container, Groups
from arviz_swiss.data.messages import warn
from arviz_swiss.data.progress import progress
from arviz_swiss.merging.models import imputed_names
from arviz_swiss.merging.powers import TILTED
from arviz_swiss.merging.records import Doubt, count_rounds
from arviz_swiss.merging.tilted import merge_tilted, put_new_draws

# Draws that the scores of a batch need: a parameter, beside those, and at least.
DRAWS_A_PARAMETER, DRAWS_BESIDE, LEAST_DRAWS = 5, 100, 320
ROUNDS = 8
# Values of rows at draws that are made anew, at most, and such draws at least: each is evaluated
# some dozens of times.
MOST_NEW, FEWEST_NEW = 5 * 10**7, 1000


class Written(NamedTuple):
    """Draws to be written as the model's variables, by the worker that has the model.

    The data of the batch come with them, unless they were read from a file.
    """

    shared: np.ndarray
    local: np.ndarray
    with_data: bool = True

    def answer(self, kept: Any, label: str) -> tuple[Groups, list[str]]:
        """Return the draws and the data of the batch, and the names of its missing outcomes."""
        groups = kept.density.to_groups(self.shared, self.local)
        if not self.with_data:
            groups = {schema.POSTERIOR: groups[schema.POSTERIOR]}
        return groups, imputed_names(kept.density.model)


def plan_effort(
    parameters: int, batches: int, draws: int, rounds: int | None = None, **given: Any
) -> Effort:
    """Return how to sample for so many draws in all, each batch with what its scores need."""
    chains = given.pop("chains", None) or CHAINS
    tune = given.pop("tune", None)
    tune = WARMUP if tune is None else tune
    each = max(draws / batches, DRAWS_A_PARAMETER * parameters + DRAWS_BESIDE, LEAST_DRAWS)
    return Effort(chains, tune, int(np.ceil(each / chains)), rounds or ROUNDS, **given)


def propagate_models(
    models: Mapping[str, Any],
    space: JointSpace,
    start: Gaussian,
    rows: Mapping[str, int] | None,
    effort: Effort,
    *,
    attrs: Mapping[str, Any],
    coords: Mapping[str, Any],
    executor: Any,
    rng: np.random.Generator,
    progressbar: bool,
) -> Container:
    """Sample the batches of these models in rounds, and merge the draws of the last one.

    `start` are moments of the shared parameters to begin with, `rows` the number of each batch's,
    where known, `attrs` what all draws say of the run, and `coords` the order of groups.
    """
    counts = rows or dict.fromkeys(models, 1)
    shares = {label: counts[label] / sum(counts.values()) for label in models}
    total = (effort.rounds + 2) * len(models)
    with (
        progress(total, "Refining", progressbar, unit="batch") as bar,
        evaluating(models, space, executor, bar) as evaluate,
    ):
        _check_priors(evaluate, list(models), start)
        propagated = propagate(_sampling(evaluate), start, shares, effort, rng, bar)
        bar.stage("looking at skewed parameters")
        redrawn = None
        with contextlib.suppress(EvaluationFailed):  # `certify` says why
            redrawn = redraw(
                evaluate,
                list(models),
                propagated.history[-1].moments,
                doubtful_positions(propagated.skewness, propagated.skewness_error),
                _new_draws(effort, len(models), rows),
                rng,
            )
        bar.stage("writing the draws")
        written = _written(
            evaluate,
            models,
            {label: (each.shared, each.local) for label, each in propagated.tilted.items()},
        )
        rewritten = {}
        if redrawn is not None:
            rewritten = _written(
                evaluate,
                models,
                {label: (redrawn.shared, local) for label, local in redrawn.local.items()},
            )
        bar.stage(count_rounds(len(propagated.history)))
        bar.finish()

    def packed(label: str, groups: Groups, imputed: Sequence[str]) -> Groups:
        own = _batch_attrs(label, shares[label], rows, [*space.axes, *imputed])
        posterior = groups[schema.POSTERIOR]
        posterior = posterior.assign_attrs(containers.safe_attrs({**attrs, **own}))
        return {**groups, schema.POSTERIOR: posterior}

    idatas = {
        label: containers.build(_with_stats(packed(label, *one), propagated.tilted[label]))
        for label, one in written.items()
    }
    doubt = doubt_steps(Rounds(propagated.history, list(models)), more="draws")
    if doubt is not None:
        warn(f"{doubt.what}. {doubt.remedy}")
    first = opened(next(iter(models.values())))
    merged = _merged(idatas, space, start, propagated, first, coords, doubt)
    if redrawn is None:
        return merged
    anew = {label: containers.build(packed(label, *one)) for label, one in rewritten.items()}
    contents = containers.read(put_new_draws(merged, anew, first, coords))
    groups = {**contents.groups, schema.REDRAWN: record(redrawn, space.parameters)}
    return containers.build(groups, contents.container)


def _new_draws(effort: Effort, batches: int, rows: Mapping[str, int] | None) -> int:
    """Return how many draws to make anew: as many as there are, unless rows are very many."""
    wanted = effort.chains * effort.draws * batches
    if rows is None:
        return wanted
    return min(wanted, max(FEWEST_NEW, MOST_NEW // sum(rows.values())))


def _written(
    evaluate: Evaluate,
    models: Mapping[str, Any],
    draws: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, tuple[Groups, list[str]]]:
    """Return draws of shared and local variables as groups, with the names of missing outcomes."""
    answers = evaluate(
        {
            label: [Written(shared, local, not isinstance(models[label], BatchModel))]
            for label, (shared, local) in draws.items()
        }
    )
    return {label: answer for label, (answer,) in answers.items()}


def _check_priors(evaluate: Evaluate, labels: Sequence[str], start: Gaussian) -> None:
    """Refuse batches whose priors of the shared parameters differ."""
    factor = np.linalg.cholesky(start.covariance)
    points = start.mean + np.concatenate([np.zeros((1, len(factor))), factor.T])
    request = Request("log_prior", points, anywhere=True)
    answers = evaluate({label: [request] for label in labels})
    for label in labels[1:]:
        check_same_prior(labels[0], label, answers[labels[0]][0], answers[label][0])


def _sampling(evaluate: Evaluate) -> SampleAll:
    def sample(tilts: Mapping[str, Tilt]) -> dict[str, Tilted]:
        answers = evaluate({label: [tilt] for label, tilt in tilts.items()})
        return {label: answer for label, (answer,) in answers.items()}

    return sample


def _merged(
    idatas: Mapping[str, Container],
    space: JointSpace,
    start: Gaussian,
    propagated: Propagated,
    model: Any,
    coords: Mapping[str, Any],
    doubt: Doubt | None,
) -> Container:
    """Return the merged object, with the rounds and the sites."""
    last = propagated.history[-1].moments
    sources = {
        label: _by_scores(propagated.tilts[label], tilted)
        for label, tilted in propagated.tilted.items()
    }
    merged = merge_tilted(idatas, space.parameters, last, sources, propagated.sites, model, coords)
    contents = containers.read(merged)
    maps = contents.groups[schema.TRANSFORM]
    places = [space.parameters.index(name) for name in maps["parameter"].values.astype(str)]
    history = [each._replace(moments=permuted(each.moments, places)) for each in propagated.history]
    rounds = with_rounds(maps, permuted(start, places), history, doubt)
    sites = _sites(propagated, list(propagated.tilted), space.parameters).isel(
        parameter=places, parameter_bis=places
    )
    groups = {**contents.groups, schema.TRANSFORM: rounds, schema.SITES: sites}
    return containers.build(groups, contents.container)


def _by_scores(tilt: Tilt, tilted: Tilted) -> Gaussian:
    """Return the moments of a tilted distribution by its scores, which know them better than draws.

    Its site and the cavity together have this precision and shift, in white coordinates.
    """
    values, vectors = np.linalg.eigh(tilted.change.precision)
    spread = vectors / np.sqrt(np.clip(1 + values, LEAST, MOST))
    half = tilt.factor @ spread
    return gaussian(tilt.mean + half @ (spread.T @ tilted.change.shift), half @ half.T)


def _with_stats(groups: Groups, tilted: Tilted) -> Groups:
    """Return one batch's draws with the sampler's statistics."""
    shape = tilted.acceptance.shape
    stats = {
        "acceptance_rate": tilted.acceptance,
        "diverging": tilted.diverging,
        "n_steps": np.broadcast_to(tilted.steps, shape).copy(),
        "step_size": np.full(shape, tilted.step_size),
    }
    coords = {dim: groups[schema.POSTERIOR][dim].values for dim in SAMPLE_DIMS}
    stats_group = xr.Dataset({k: (SAMPLE_DIMS, v) for k, v in stats.items()}, coords)
    return {**groups, schema.SAMPLE_STATS: stats_group}


def _batch_attrs(
    label: str, share: float, rows: Mapping[str, int] | None, local: Iterable[str]
) -> dict[str, Any]:
    """Return what a tilted batch's draws say of themselves."""
    attrs = {
        schema.BATCH: label,
        schema.KIND: TILTED,
        schema.POWER: 1 / share,
        schema.PRIOR_POWER: 1.0,
        schema.LOCAL: ",".join(local),
    }
    return attrs if rows is None else {**attrs, schema.SIZE: rows[label]}


def _sites(propagated: Propagated, labels: Sequence[str], parameters: Sequence[str]) -> xr.Dataset:
    """Return the group of sites and cavities, in the coordinates of the parameters."""
    back = np.linalg.inv(propagated.factor)
    sites = [propagated.sites[label] for label in labels]
    tilts = [propagated.tilts[label] for label in labels]
    before = np.linalg.inv(tilts[0].factor)
    cavities = [np.eye(len(before)) - tilt.site.precision for tilt in tilts]
    square, by_batch = ("parameter", "parameter_bis"), ("batch", "parameter")
    meanings = schema.VARIABLES[schema.SITES]
    data: dict[str, tuple[Any, Any]] = {
        "precision": (("batch", *square), [back.T @ site.precision @ back for site in sites]),
        "shift": (by_batch, [back.T @ site.shift for site in sites]),
        "cavity_mean": ("parameter", tilts[0].mean),
        "cavity_precision": (("batch", *square), [before.T @ each @ before for each in cavities]),
        "cavity_shift": (by_batch, [-before.T @ tilt.site.shift for tilt in tilts]),
        "skewness": ("parameter", propagated.skewness),
        "skewness_error": ("parameter", propagated.skewness_error),
    }
    coords = {"batch": list(labels), **{dim: list(parameters) for dim in square}}
    return xr.Dataset(
        {k: (dims, np.array(v), {"description": meanings[k]}) for k, (dims, v) in data.items()},
        coords,
    )
