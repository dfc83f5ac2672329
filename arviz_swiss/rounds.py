"""The rounds of `refine`: whether they settled or must be undone, and their record."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from arviz_swiss import kernels, linalg
from arviz_swiss.kernels import Gaussian, Round
from arviz_swiss.warnings import MergeWarning

# A change of so many errors may be noise.
NOISE = 2.0
# Below this there is nothing but rounding.
NEGLIGIBLE = 1e-7
# In posterior sds: the step after a longer one would be worth taking.
UNFINISHED = 0.25
# A precision that is so many times off the number of batches, at most, is the number of batches.
ABOUT = 1.3


class Rounds(NamedTuple):
    """Rounds, what the likelihoods of the batches are like, and what ended the rounds if it failed.

    Likelihoods are `alike` if their gradients are equal at all points. Those of the batches
    `upwards` curve upwards in every direction at the merged draws.
    """

    history: list[Round]
    labels: Sequence[str]
    alike: bool = False
    upwards: Sequence[str] = ()
    failure: str = ""


def at_least_half(some: Sequence[str], labels: Sequence[str]) -> bool:
    """Tell whether some of the batches are half of them or more."""
    return 2 * len(some) >= len(labels)


def settled(history: Sequence[Round]) -> bool:
    """Tell whether the last round changed nothing that noise could not have: mean and precision.

    A step has the noise of where it starts, that is of the round before, and of where it ends. Its
    length is then about the error itself, half of the time beyond it.
    """
    last = history[-1]
    step = NOISE * np.hypot.reduce([one.step_error for one in history[-2:]])
    change = NOISE * np.hypot.reduce([one.change_error for one in history[-2:]])
    return last.step <= max(step, NEGLIGIBLE) and last.change <= max(change, NEGLIGIBLE)


def warn_of_undoing(rounds: Rounds, wrong_gradients: Sequence[str]) -> bool:
    """Warn if the rounds lead away from the posterior, and tell so: the merge is then better."""
    if wrong_gradients:
        why = "; ".join(wrong_gradients)
        remedy = "Mend the gradient, its sign first of all, and refine the merge again."
    elif why := _diverged(rounds):
        remedy = (
            "Usual causes are a log density of the wrong sign (a negative log likelihood), a "
            "density of other data, and a posterior far from Gaussian or from the merged draws. "
            "Look at the densities first; then refine with more rounds or points, or merge fewer "
            "and larger batches."
        )
    else:
        return False
    warnings.warn(f"refine leaves the merge as it was: {why}. {remedy}", MergeWarning, stacklevel=3)
    return True


def _diverged(rounds: Rounds) -> str:
    """Say why the rounds led away from the posterior; nothing if there is no such reason."""
    history, failure = rounds.history, rounds.failure
    if failure:
        return f"its rounds led to where there is no posterior ({failure.rstrip('.')})"
    last = history[-1]
    if at_least_half(rounds.upwards, rounds.labels):
        return (
            f"the log likelihoods of batches {', '.join(rounds.upwards)} curve upwards in every "
            "direction at the merged draws, so there is no maximum of the full one"
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


def warn_of_steps(rounds: Rounds) -> None:
    """Warn unless the last step was small, or the smallest of all, or nothing but noise."""
    history = rounds.history
    if rounds.upwards:
        warnings.warn(
            f"the log likelihood of batch {', '.join(rounds.upwards)} curves upwards in every "
            "direction at the merged draws. If that is a negative log likelihood, change its sign "
            "and that of its gradient, and refine the merge again; if it is an unlikely batch "
            "indeed, certify tells what the result is worth.",
            MergeWarning,
            stacklevel=3,
        )
    elif why := _unsettled(history):
        warnings.warn(
            f"{why}: {_steps(history)}. The posterior is far from Gaussian or from the merged "
            "draws: do not trust the result before certify does. Refine it again, with more points "
            "or rounds, or merge fewer and larger batches.",
            MergeWarning,
            stacklevel=3,
        )


def _unsettled(history: Sequence[Round]) -> str:
    """Say why the last step may not have led to the posterior; nothing if there is no reason."""
    last = history[-1]
    if _is_still(history):
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


def _is_still(history: Sequence[Round]) -> bool:
    """Tell whether the last step may be noise: such steps need not shrink."""
    last = history[-1]
    return settled(history) or last.step <= max(5 * last.step_error, NEGLIGIBLE)


def _steps(history: Sequence[Round]) -> str:
    steps = ", ".join(f"{one.step:.3g}" for one in history)
    return f"{steps} posterior sds, the last with an error of {history[-1].step_error:.2g}"


def check_counted_once(rounds: Rounds, pooled: np.ndarray, advice: str) -> None:
    """Refuse or warn of densities that hold the data about as often as there are batches.

    Parameters
    ----------
    rounds : Rounds
    pooled : (parameter, parameter) array
        The covariance that the merge says the posterior has.
    advice : str
        How to make the densities.
    """
    final: Gaussian = rounds.history[-1].moments
    ratios, batches = linalg.spectrum(final.factor, pooled).values, len(rounds.labels)
    # what the prior alone knows is as precise as it was
    if batches > 1 and rounds.alike and ratios.max() > np.sqrt(batches):
        raise ValueError(
            "all batches have equal densities, which make the posterior up to "
            f"{ratios.max():.3g} times as precise as the merge: does each hold the data of all "
            f"batches? They would count {batches} times. {advice} If the batches' data are equal "
            "indeed, merge with the kind= that they were sampled with."
        )
    if rounds.upwards or not settled(rounds.history):
        return
    if batches > 2 and (why := _miscounted(ratios, batches)):
        warnings.warn(
            f"the densities make the posterior {_typical(ratios):.3g} times as precise as the "
            f"merge in every direction, and there are {batches} batches: {why}. The refined draws "
            "follow the densities: do not trust them before certify does.",
            MergeWarning,
            stacklevel=3,
        )


def _miscounted(ratios: np.ndarray, batches: int) -> str:
    if _are_about(ratios, batches):
        return (
            "plain or fractionated batches were merged as inflated ones (merge with the kind= or "
            "powers= that they were sampled with), or the densities are raised to a power or hold "
            "rows of other batches (pass plain densities of each batch's own rows)"
        )
    if _are_about(ratios, 1 / batches):
        return (
            "inflated batches were merged as others (merge with the kind= or powers= that they "
            "were sampled with), or the densities hold only a part of their batches' rows"
        )
    return ""


def _are_about(ratios: np.ndarray, number: float) -> bool:
    return bool(ratios.min() > number / ABOUT and ratios.max() < number * ABOUT)


def _typical(ratios: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def recorded(
    maps: xr.Dataset, start: Gaussian, history: Sequence[Round], taken: bool = True
) -> xr.Dataset:
    """Return the group `swiss_transform` with all rounds, and if taken the new maps and moments."""
    rounds = _all_rounds(maps, start, history, taken)
    kept = maps.drop_dims("round", errors="ignore")
    if taken:
        moved = _moved_maps(maps, start, history[-1].moments)
        kept = kept.drop_vars(list(moved)).assign(moved)
    return kept.merge(rounds, join="exact", compat="override")


def _moved_maps(maps: xr.Dataset, start: Gaussian, last: Gaussian) -> dict[str, Any]:
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
    return new


def _all_rounds(
    maps: xr.Dataset, start: Gaussian, history: Sequence[Round], taken: bool
) -> xr.Dataset:
    """Return the rounds of earlier calls and of this one."""
    before = maps[[name for name in maps.data_vars if "round" in maps[name].dims]]
    rounds = _round_records(start, history, taken)
    if not before.data_vars:
        return rounds
    first = int(before["round"][-1])
    later = rounds.isel(round=slice(1, None))
    return xr.concat([before, later.assign_coords(round=later["round"] + first)], "round")


def _round_records(start: Gaussian, history: Sequence[Round], taken: bool) -> xr.Dataset:
    moments = [start, *(one.moments if taken else start for one in history)]
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
        "taken": ("round", [True] + [taken] * len(history)),
    }
    coords = {"round": np.arange(len(moments)), "bound": np.array(["low", "high"])}
    return xr.Dataset({k: (dims, np.array(v)) for k, (dims, v) in described.items()}, coords=coords)
