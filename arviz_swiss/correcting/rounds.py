"""The rounds of `refine`: whether they settled or must be undone, and their record."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss.base import gaussian, linalg
from arviz_swiss.base.gaussian import Gaussian, Round
from arviz_swiss.data import schema
from arviz_swiss.merging.records import Doubt

# A change of so many errors may be noise.
NOISE = 2.0
# Below this there is nothing but rounding.
NEGLIGIBLE = 1e-7
# In posterior sds: the step after a longer one would be worth taking.
UNFINISHED = 0.25
# A precision that is so many times off the number of batches, at most, is the number of batches.
ABOUT = 1.3
UNDONE, UNSETTLED, UPWARDS, MISCOUNTED = (
    "refine undone",
    "refine unsettled",
    "curves upwards",
    "miscounted",
)


class Rounds(NamedTuple):
    """Rounds, what the likelihoods of `labels` are like, and what ended the rounds if it failed.

    Likelihoods are `alike` if their gradients are equal at all points. Those of `upwards` curve
    upwards in every direction at the merged draws.
    """

    history: list[Round]
    labels: Sequence[str]
    alike: bool = False
    upwards: Sequence[str] = ()
    failure: str = ""


def are_half(some: Sequence[str], labels: Sequence[str]) -> bool:
    """Tell whether some are half of all or more; of two, both: one may be odd."""
    return len(some) >= (2 if len(labels) == 2 else len(labels) / 2)


def settled(history: Sequence[Round]) -> bool:
    """Tell whether the last round changed nothing that noise could not have: mean and precision.

    A step has the noise of where it starts, that is of the round before, and of where it ends. Its
    length is then about the error itself, half of the time beyond it. Through much noise nothing
    can be told.
    """
    last = history[-1]
    if last.step_error > UNFINISHED:
        return False
    step = NOISE * np.hypot.reduce([r.step_error for r in history[-2:]])
    change = NOISE * np.hypot.reduce([r.change_error for r in history[-2:]])
    return last.step <= max(step, NEGLIGIBLE) and last.change <= max(change, NEGLIGIBLE)


def doubt_undone(rounds: Rounds, wrong_gradients: Sequence[str]) -> Doubt | None:
    """Return why the rounds lead away from the posterior, if they do: the merge is then better."""
    if wrong_gradients:
        why = "; ".join(wrong_gradients)
        remedy = "Mend the gradient, its sign first of all, and refine the merge again."
    elif why := _diverged(rounds):
        remedy = (
            "Usual causes are a log density of the wrong sign (a negative log likelihood), a "
            "density of other data, two modes, and a posterior far from Gaussian or from the "
            f"merged draws. Look at the densities first; then {_next(rounds)}merge fewer and "
            "larger batches."
        )
    elif _is_lost_in_noise(rounds.history):
        why = f"its gradients vary too much to tell where to go: {_steps(rounds.history)}"
        remedy = (
            "Refine with more points=, ten times as many; where that does not help, as for two "
            "modes, merge fewer and larger batches."
        )
    else:
        return None
    return Doubt(UNDONE, f"refine leaves the merge as it was: {why}", remedy)


def _next(rounds: Rounds) -> str:
    """Advise more rounds, unless the steps go to and fro."""
    history = rounds.history
    overshoots = len(history) > 1 and history[-1].step >= history[-2].step
    return "" if overshoots else "refine with more rounds or points, or "


def _is_lost_in_noise(history: Sequence[Round]) -> bool:
    """Tell whether the rounds went no further than their noise would have, and that is far."""
    first, last = history[0], history[-1]
    return last.step_error > UNFINISHED and first.step <= 5 * last.step_error


def _diverged(rounds: Rounds) -> str:
    """Say why the rounds led away from the posterior; nothing if there is no such reason."""
    history, failure = rounds.history, rounds.failure
    if failure:
        return f"its rounds led to where there is no posterior ({failure.rstrip('.')})"
    last = history[-1]
    if are_half(rounds.upwards, rounds.labels):
        return (
            f"{_curve_upwards(rounds.upwards)} in every direction at the merged draws, so there is "
            "usually no maximum of the full one"
        )
    if last.unlimited[0] <= 0:
        share = np.mean(last.unlimited <= 0)
        where = "every direction" if share == 1 else "some directions"
        return (
            f"the full log density curves upwards in {where} after {_steps(history)}, so it has "
            "no maximum near the draws"
        )
    if len(history) > 1 and last.step >= history[0].step and not _is_still(history):
        return f"the steps of refine do not shrink: {_steps(history)}"
    return ""


def _curve_upwards(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f"the log likelihood of batch {labels[0]} curves upwards"
    return f"the log likelihoods of batches {', '.join(labels)} curve upwards"


def doubt_steps(rounds: Rounds, more: str = "points") -> Doubt | None:
    """Return a doubt unless the last step was small, or the smallest, or nothing but noise.

    `more` names what a round could have more of.
    """
    history = rounds.history
    if rounds.upwards:
        return Doubt(
            UPWARDS,
            f"{_curve_upwards(rounds.upwards)} in every direction at the merged draws",
            "If that is a negative log likelihood, change its sign and that of its gradient, and "
            "refine the merge again; if it is an unlikely batch indeed, or one of two modes, "
            "certify tells what the result is worth.",
        )
    if why := _unsettled(history):
        return Doubt(
            UNSETTLED,
            f"{why}: {_steps(history)}. The posterior is far from Gaussian or from the merged "
            "draws: do not trust the result before certify does",
            f"Refine it again, with more {more} or rounds, or merge fewer and larger batches.",
        )
    return None


def _unsettled(history: Sequence[Round]) -> str:
    """Say why the last step may not have led to the posterior; nothing if there is no reason."""
    last = history[-1]
    if last.step_error > UNFINISHED:
        return "the gradients of refine vary too much to tell the end of its steps"
    if last.damping < 1:
        return "refine could take only a part of its last step"
    if _is_still(history):
        return ""
    if last.step >= min((r.step for r in history[:-1]), default=np.inf):
        return "the steps of refine do not shrink"
    low, high = gaussian.CLIP
    if last.eigenvalues[0] <= low or last.eigenvalues[-1] >= high:
        return "refine could not change the covariance as far as it had to, in steps of"
    # where the score is linear, there is no noise, and one step leads all the way
    if last.step > UNFINISHED and last.step_error > NEGLIGIBLE:
        return "refine ended while its steps were still long"
    return ""


def _is_still(history: Sequence[Round]) -> bool:
    """Tell whether the last step may be noise: such steps need not shrink."""
    last = history[-1]
    return settled(history) or last.step <= max(5 * last.step_error, NEGLIGIBLE)


def _steps(history: Sequence[Round]) -> str:
    steps = ", ".join(f"{r.step:.3g}" for r in history)
    return f"{steps} posterior sds, the last with an error of {history[-1].step_error:.2g}"


def doubt_counts(rounds: Rounds, batches: int, pooled: np.ndarray, advice: str) -> Doubt | None:
    """Refuse or doubt densities that hold the data about as often as there are batches.

    `pooled` is the covariance that the merge says the posterior has; `advice` says how to give the
    densities.
    """
    final: Gaussian = rounds.history[-1].moments
    ratios, count = linalg.spectrum(final.factor, pooled).values, len(rounds.labels)
    # what the prior alone knows is as precise as it was
    if count > 1 and rounds.alike and ratios.max() > np.sqrt(count):
        raise ValueError(
            f"all {count} densities are equal, which make the posterior up to {ratios.max():.3g} "
            "times as precise as the merge: does each hold the data of all batches? They would "
            f"count {count} times. {advice} If the batches' data are equal indeed, merge with the "
            "kind= that they were sampled with."
        )
    if rounds.upwards or not settled(rounds.history) or batches <= 2:
        return None
    typical = np.exp(np.mean(np.log(ratios)))
    if not (causes := _miscounted(ratios, batches)):
        return None
    return Doubt(
        MISCOUNTED,
        f"the densities make the posterior {typical:.3g} times as precise as the merge in "
        f"every direction, and there are {batches} batches: {causes[0]}. The refined draws follow "
        "the densities: do not trust them before certify does",
        causes[1],
    )


def _miscounted(ratios: np.ndarray, batches: int) -> tuple[str, str] | None:
    """Return what the cause can be, and what to do."""
    if _are_about(ratios, batches):
        return (
            "plain or fractionated batches were merged as inflated ones, or the densities are "
            "raised to a power or hold rows of other batches",
            "Merge with the kind= or powers= that the batches were sampled with, and pass plain "
            "densities of each batch's own rows.",
        )
    if _are_about(ratios, 1 / batches):
        return (
            "inflated batches were merged as others, or the densities hold only a part of their "
            "batches' rows",
            "Merge with the kind= or powers= that the batches were sampled with, and pass "
            "densities of all of each batch's rows.",
        )
    return None


def _are_about(ratios: np.ndarray, number: float) -> bool:
    return bool(ratios.min() > number / ABOUT and ratios.max() < number * ABOUT)


def recorded(
    maps: xr.Dataset, start: Gaussian, history: Sequence[Round], doubt: Doubt | None
) -> xr.Dataset:
    """Return the group `swiss_transform` with all rounds and what speaks against these.

    Unless they are undone, also with the new maps and moments.
    """
    taken = doubt is None or doubt.flag != UNDONE
    moved = _moved_maps(maps, start, history[-1].moments) if taken else {}
    return with_rounds(maps.drop_vars(list(moved)).assign(moved), start, history, doubt)


def with_rounds(
    maps: xr.Dataset, start: Gaussian, history: Sequence[Round], doubt: Doubt | None
) -> xr.Dataset:
    """Return the group `swiss_transform` with rounds, whose end its maps lead to already."""
    taken = doubt is None or doubt.flag != UNDONE
    rounds = _all_rounds(maps, start, history, taken)
    kept = maps.drop_dims("round", errors="ignore")
    record = kept.merge(rounds, join="exact", compat="override")
    record.attrs = {k: v for k, v in maps.attrs.items() if k not in schema.REFINE_ATTRS}
    return record.assign_attrs(dict(zip(schema.REFINE_ATTRS, doubt or (), strict=False)))


def _moved_maps(maps: xr.Dataset, start: Gaussian, last: Gaussian) -> dict[str, Any]:
    scale = gaussian.map_between(start, last)
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
    return new


def _all_rounds(
    maps: xr.Dataset, start: Gaussian, history: Sequence[Round], taken: bool
) -> xr.Dataset:
    """Return the rounds of earlier calls and of this one."""
    before = maps[[name for name in maps.data_vars if "round" in maps[name].dims]]
    if before.data_vars and "taken" not in before:
        before = before.assign(taken=("round", np.ones(before.sizes["round"], dtype=bool)))
    rounds = _round_records(start, history, taken)
    if not before.data_vars:
        return rounds
    first = int(before["round"][-1])
    later = rounds.isel(round=slice(1, None))
    return xr.concat([before, later.assign_coords(round=later["round"] + first)], "round")


def _round_records(start: Gaussian, history: Sequence[Round], taken: bool) -> xr.Dataset:
    moments = [start, *(r.moments if taken else start for r in history)]
    nothing = [np.nan]
    ranges = [[1.0, 1.0], *([r.eigenvalues[0], r.eigenvalues[-1]] for r in history)]
    described = {
        "round_mean": (("round", "parameter"), [m.mean for m in moments]),
        "round_covariance": (
            ("round", "parameter", "parameter_bis"),
            [m.covariance for m in moments],
        ),
        "step": ("round", nothing + [r.step for r in history]),
        "step_error": ("round", nothing + [r.step_error for r in history]),
        "eigenvalue_range": (("round", "bound"), ranges),
        "taken": ("round", [True] + [taken] * len(history)),
    }
    coords = {"round": np.arange(len(moments)), "bound": np.array(["low", "high"])}
    return xr.Dataset({k: (dims, np.array(v)) for k, (dims, v) in described.items()}, coords=coords)
