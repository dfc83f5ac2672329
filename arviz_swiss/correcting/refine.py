"""refine(): remove the error of a merge by gradient rounds over the batches' densities."""

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from arviz_swiss.base import gaussian, weights
from arviz_swiss.base.counts import check_count
from arviz_swiss.base.gaussian import Gaussian, Round
from arviz_swiss.base.seeds import generator
from arviz_swiss.correcting.batch_model import is_modelled
from arviz_swiss.correcting.batch_model import opened as here
from arviz_swiss.correcting.belonging import advice, check_all_there
from arviz_swiss.correcting.densities import Source, space_for_models, summed_densities
from arviz_swiss.correcting.evaluation import (
    Evaluate,
    EvaluationFailed,
    NotFinite,
    OutOfBounds,
    evaluating,
)
from arviz_swiss.correcting.full_posterior import Scores, all_scores, full_score
from arviz_swiss.correcting.gradients import PAIRS, curved_upwards, wrong_gradients
from arviz_swiss.correcting.moving import moved_groups
from arviz_swiss.correcting.refine_local import has_local, one_model_a_batch, refine_local
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
from arviz_swiss.data.containers import Container
from arviz_swiss.data.messages import warn
from arviz_swiss.data.progress import Bar, progress
from arviz_swiss.merging.elements import as_given
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.records import Doubt, count_rounds
from arviz_swiss.merging.space import checked_choices

# At most so many gradient rounds, unless the user says otherwise.
ROUNDS = 5
# Fewer points a parameter leave too much noise in the precision.
POINTS_PER_PARAMETER = 3


def refine(
    merged: Container | str | PathLike,
    densities: Any = None,
    *,
    build: Callable[[Any], Any] | None = None,
    data: Any = None,
    groups: Any = None,
    stratify: Any = None,
    folder: str | PathLike | None = None,
    rounds: int | None = None,
    points: int = 200,
    draws: int = 4000,
    executor: Any = None,
    random_seed: int | np.random.Generator | None = None,
    group: str = "posterior",
    transforms: Mapping[str, Any] | None = None,
    model: Any = None,
    progressbar: bool = True,
) -> Container:
    r"""Remove the error of a merge: a few gradients of the full data's log density.

    SwISS is exact for Gaussian sub-posteriors. For others the merged mean can be off by more than a
    posterior standard deviation when batches are small. Each round takes the gradient of the log
    density of all data at some merged draws, corrects the mean and the covariance by what it says,
    and maps all draws to the new moments. Their shape is kept. Batches with variables of their own,
    such as random effects, are sampled anew instead, see Notes.

    Parameters
    ----------
    merged : InferenceData or DataTree, or the path of its file
        As `merge` returned it, by any method.
    densities : density, sequence, or mapping of label to density
        Densities that together hold every row once: one of all the data, one a batch (in their
        order, or by label), or any others, in a list or by labels of their own. A density is a
        plain PyMC model (not a tempered one), or any object with the methods ``log_prior(x)``,
        ``log_likelihood(x)``, ``grad_log_prior(x)`` and ``grad_log_likelihood(x)``. They take
        points as a (points, parameters) array, in the space of the merge and in the order of
        ``merged["swiss_transform"]["parameter"]``, and return (points,) arrays, the gradients
        (points, parameters). No powers. Where batches have variables of their own: the PyMC model
        of each batch.
    build, data : callable and object, optional
        Instead of `densities`: the function and the data of `sample_batches`. The batches' rows are
        found again by what the merged object records.
    groups, stratify : array-like or hashable, optional
        With `build`: those of `sample_batches`, unless they were names of columns, which are
        recorded.
    folder : path, optional
        With `data` in files or lazy frames: that of `sample_batches` or `sample`, unless it is
        where it was then. Without one the rows are divided again, into a temporary folder that is
        there as long as the call.
    rounds : int, optional
        At most so many, by default 5, or 8 where batches have variables of their own; fewer once
        mean and precision change by no more than Monte Carlo error.
    points : int, default 200
        Gradients a round and density, at least; never fewer than three for each parameter.
    draws : int, default 4000
        Where batches have variables of their own: about how many draws there shall be in all;
        more if the batches' scores need them.
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where to evaluate the densities; when absent, in threads of this process, one a core, each
        density by one of them at a time. Each worker of an executor keeps the densities it was
        sent: afterwards only points and gradients travel.
    random_seed : int or Generator, optional
        Seed of the choice of points.
    group : str, default "posterior"
    transforms : mapping of variable to transform, optional
        Your own transform objects, if you merged with any: a merged object cannot hold them. Where
        batches have variables of their own: "log" or "softplus" for positive ones, in which rounds
        are done from there on, such as ``{"tau": "softplus"}`` for a scale near zero.
    model : pymc.Model, optional
        The model that you merged with, if any, likewise; the first density when absent.
    progressbar : bool, default True
        Show progress in a terminal or a notebook, if tqdm is installed.

    Returns
    -------
    InferenceData or DataTree
        A new merged object. Its group `swiss_transform` holds each round's moments, the length of
        its `step` in Mahalanobis distance with its Monte Carlo error, and the range of the new
        precision's eigenvalues seen from the old, along a dimension `round`, where round 0 is the
        merge. Rounds that led away from the posterior are not `taken`: the merge stays as it was.
        In `swiss_diagnostics`, `shift` and `sd_ratio` are about the refined posterior, all else
        about the merge. Groups that belong to the draws before, such as predictions and a
        certificate, are left out. Where batches have variables of their own all draws are new, of
        kind "tilted", and `swiss_sites` holds what each batch says of the shared parameters.

    Raises
    ------
    ValueError
        When priors differ, a density is not finite, densities are not of the rows that were merged,
        each once, `data` are not those that were divided, or `transforms` names what cannot be.
    TypeError
        When a density lacks methods, or is no PyMC model though batches have variables of their
        own, or neither `densities` nor `build` and `data` are given, or both.
    RuntimeError
        When a batch's own variables cannot be sampled together with what the others say of the
        shared ones, as where they have no mode.

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

    Where batches have variables :math:`\alpha_b` of their own, each round samples every batch from
    a *tilted* distribution, with its share :math:`a_b` of the prior, and Gaussian sites
    :math:`(P_c, r_c)` that stand for the others [1]_,

    .. math:: p(\theta)^{a_b} f_b(\theta, \alpha_b)
        \exp \sum_{c \ne b} (r_c' \theta - \theta' P_c \theta / 2),

    in white coordinates z and u of :math:`\theta = \mu + L z, \alpha_b = m_b + G_b z + S_b u`. The
    gradient by z is an unbiased score of z (Fisher's identity). Regressed as
    :math:`s + z = c_b + M_b z + \ldots` it changes the site; the pooled moments become, in z,

    .. math:: P_{new} = I - \sum_b (M_b + M_b') / 2, \quad \mu_{new} = P_{new}^{-1} \sum_b c_b.

    References
    ----------
    .. [1] Vehtari et al. (2020), Expectation propagation as a way of life, Journal of Machine
       Learning Research 21. https://doi.org/10.48550/arXiv.1412.4869

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

    Only the sum of the likelihoods counts, so that a density of all rows does the same.

    >>> same = az_swiss.refine(merged, Counts(22, 40), random_seed=1, progressbar=False)
    >>> bool(np.allclose(same["posterior"]["rate"], refined["posterior"]["rate"]))
    True
    """
    opened = open_merged(merged, group)
    check_all_there(opened)
    check_count("draws", draws)
    if rounds is not None:
        check_count("rounds", rounds)
    local = opened.attrs.get(schema.LOCAL)
    with Source(densities, build, data, groups, stratify, folder).reading(
        opened, progressbar
    ) as source:
        matched = (one_model_a_batch if local else summed_densities)(opened, source)
        first = next(iter(matched.values()))
        if is_modelled(first) and not local:
            model = model or here(first)
        if local or (is_modelled(first) and has_local(opened, model)):
            return refine_local(
                opened,
                matched if local else one_model_a_batch(opened, source),
                transforms=transforms,
                draws=draws,
                rounds=rounds,
                executor=executor,
                rng=generator(random_seed),
                progressbar=progressbar,
            )
        _check_no_names(transforms, opened)
        rounds = rounds or ROUNDS
        space = opened.space(transforms, model)
        _check_counts(opened, rounds=rounds, points=points)
        start = opened.present_moments
        # PyMC makes its gradients itself
        written = [label for label, density in matched.items() if not is_modelled(density)]
        total = rounds * len(matched) + len(written)
        with (
            progress(total, "Refining", progressbar) as bar,
            evaluating(matched, space_for_models(opened), executor, bar) as evaluate,
        ):
            wrong = wrong_gradients(evaluate, written, _some_draws(opened, 2 * PAIRS))
            most = 1 if wrong else rounds
            rng = generator(random_seed)
            done = _rounds(opened, evaluate, list(matched), start, most, points, rng, bar)
            bar.finish()
    undone = doubt_undone(done, wrong)
    doubt = undone or _doubt_result(opened, done, advice(opened, source.is_built))
    if doubt is not None:
        warn(f"{doubt.what}. {doubt.remedy}")
    result = containers.read(merged, group).groups
    if undone is None:
        moved = moved_groups(opened, space, start, done.history[-1].moments)
        result = as_given(moved, result)
    result = {**result, schema.TRANSFORM: recorded(opened.maps, start, done.history, doubt)}
    return containers.build(result, opened.container, containers.root_attrs(merged))


def _check_no_names(choices: Mapping[str, Any] | None, opened: Merged) -> None:
    """Refuse to change where all variables were merged."""
    merged = json.loads(opened.attrs.get(schema.TRANSFORMS, "{}"))
    for name, choice in checked_choices(choices).items():
        if isinstance(choice, str) and choice != merged.get(name):
            raise ValueError(
                f'transforms={{"{name}": "{choice}"}}: draws are refined where they were merged. '
                "Merge them with that transform, or sample(..., transforms=) from the start."
            )


def _check_counts(opened: Merged, **counts: int) -> None:
    for name, value in counts.items():
        check_count(name, value)
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
    labels: Sequence[str],
    start: Gaussian,
    rounds: int,
    points: int,
    rng: np.random.Generator,
    bar: Bar,
) -> Rounds:
    """Return the rounds: each at merged draws as the rounds before have moved them."""
    chains, length = opened.sizes
    count = max(points, POINTS_PER_PARAMETER * start.mean.size)
    history: list[Round] = []
    moments, upwards = start, list[str]()
    while len(history) < rounds and not are_half(upwards, labels):
        bar.stage(f"round {len(history) + 1} of at most {rounds}")
        positions = weights.spread_evenly(chains * length, count, rng)
        draws = opened.rows(*np.divmod(positions, length))
        at = (draws - start.mean) @ gaussian.map_between(start, moments).T + moments.mean
        try:
            scores = all_scores(evaluate, labels, at, opened.parameters, compare=not history)
            history.append(gaussian.gradient_round(at, full_score(scores), moments))
        except (NotFinite, OutOfBounds, EvaluationFailed, np.linalg.LinAlgError) as error:
            if not history:
                raise
            return Rounds(history, labels, upwards=upwards, failure=str(error))
        if moments is start:
            upwards = curved_upwards(at, scores.likelihoods, start)
        moments = history[-1].moments
        if settled(history):
            break
    bar.stage(count_rounds(len(history)))
    return Rounds(history, labels, _are_alike(scores), upwards)


def _are_alike(scores: Scores) -> bool:
    first, *others = scores.likelihoods.values()
    scale = np.abs(first).max()
    return all(np.allclose(first, other, rtol=1e-6, atol=1e-9 * scale) for other in others)


def _doubt_result(opened: Merged, rounds: Rounds, remedy: str) -> Doubt | None:
    pooled = opened.maps["pooled_covariance"].transpose("parameter", "parameter_bis").values
    return doubt_counts(rounds, len(opened.labels), pooled, remedy) or doubt_steps(rounds)
