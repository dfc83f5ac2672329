"""The sampler's arguments: which there are, which are settled here, and how nutpie calls them."""

import difflib
import inspect
from collections.abc import Callable, Collection
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from arviz_swiss.pymc.compiling import compiles_with_numba

SAMPLERS = ("pymc", "nutpie", "numpyro", "blackjax")
RESERVED = {
    "model": "the models come from build",
    "step": "every batch is sampled with NUTS",
    "cores": "chains of a batch run one after the other, and batches in parallel",
    "mp_ctx": "use executor=",
    "blas_cores": "every batch uses one",
    "quiet": "use progressbar=",
    "trace": "use folder=",
    "return_inferencedata": "the batches are always InferenceData or DataTree",
    "discard_tuned_samples": "tuning draws cannot be merged",
}
# What pymc.sample takes besides the arguments in its signature.
BESIDES = ("nuts", "target_accept")
# Set here, or at odds with what is returned.
NUTPIE_SETTLED = set(
    "draws tune chains cores seed save_warmup progress_bar num_draws num_tune num_chains "
    "compiled_model blocking return_raw_trace zarr_store".split()
)
# nutpie does not list the settings that its sampler takes beyond its signature: to suggest from.
NUTPIE_SETTINGS = (
    "target_accept maxdepth mindepth max_energy_error store_gradient store_divergences "
    "store_mass_matrix store_unconstrained initial_step step_size_jitter step_size_adapt_method "
    "mass_matrix_gamma mass_matrix_eigval_cutoff"
).split()
# Known beyond signature and settings: how to compile, PyMC's name for a setting, and old names.
NUTPIE_ALIASES = (
    "backend gradient_backend max_treedepth low_rank_modified_mass_matrix transform_adapt "
    "use_grad_based_mass_matrix"
).split()
# What other samplers call arguments of sample and sample_batches.
OTHER_NAMES = {
    "seed": "random_seed",
    "num_draws": "draws",
    "num_samples": "draws",
    "num_tune": "tune",
    "num_warmup": "tune",
    "num_chains": "chains",
    "progress_bar": "progressbar",
}
# With these, pymc.sample does not take nutpie unless it is named.
ONLY_PYMC = {"init", "callback"}


def check_sample_kwargs(
    sample_kwargs: dict[str, Any],
    nuts_sampler: str | None = None,
    function: str = "sample_batches",
) -> None:
    """Refuse arguments of ``pymc.sample`` that are settled here, or that no sampler would read.

    `function` is the one that was called with them.
    """
    if nuts_sampler is not None and nuts_sampler not in SAMPLERS:
        raise ValueError(
            f"nuts_sampler must be one of {', '.join(SAMPLERS)}, got {nuts_sampler!r}."
            + _suggestion(str(nuts_sampler), SAMPLERS)
        )
    for name in sample_kwargs:
        if name in RESERVED:
            raise TypeError(f"{function} does not take {name}=: {RESERVED[name]}.")
    for name in ("nuts", "nuts_sampler_kwargs", "idata_kwargs", "compile_kwargs"):
        value = sample_kwargs.get(name)
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{name} must be a dict of arguments, got {value!r}.")
    if settled := [name for name in nutpie_options(sample_kwargs) if name in NUTPIE_SETTLED]:
        raise TypeError(
            f"{function} does not take {', '.join(settled)} among the sampler's own arguments: it "
            "sets them itself."
        )
    if (sample_kwargs.get("idata_kwargs") or {}).get("log_likelihood"):
        raise TypeError(
            f"{function} does not take idata_kwargs with log_likelihood: merging moves the "
            "draws. Use pymc.compute_log_likelihood on the merged posterior."
        )
    if not sample_kwargs:
        return  # to ask nutpie what it takes is to import it, and a compiler
    if nuts_sampler is None:
        nuts_sampler = "pymc" if ONLY_PYMC & set(sample_kwargs) else default_sampler()
    _check_known(sample_kwargs, nuts_sampler, function)


def check_own_kwargs(sample_kwargs: dict[str, Any]) -> None:
    """Refuse arguments that are for samplers of PyMC, where our own chains sample."""
    if others := [name for name in sample_kwargs if name != "target_accept"]:
        raise TypeError(
            f"{others[0]}= is for samplers of PyMC, and none was asked for: pass nuts_sampler= as "
            'well, such as nuts_sampler="nutpie", or leave it out.'
        )
    target = sample_kwargs.get("target_accept", 0.9)
    if not isinstance(target, float | np.floating) or not 0 < target < 1:
        raise ValueError(f"target_accept must be a number between 0 and 1, got {target!r}.")


def default_sampler() -> str:
    """Return what ``pymc.sample`` uses by default: nutpie where there is one, from PyMC 6 on."""
    default = inspect.signature(pm.sample).parameters["nuts_sampler"].default
    if default is not None:
        return default
    return "nutpie" if compiles_with_numba() and find_spec("nutpie") else "pymc"


def fastest_sampler() -> str:
    """Return the sampler that compiles once for all batches, where there is one."""
    return "nutpie" if find_spec("nutpie") else default_sampler()


def nutpie_options(sample_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the sampler's own arguments, wherever they were given, by the names of nutpie."""
    options = {
        **(sample_kwargs.get("nuts_sampler_kwargs") or {}),
        **(sample_kwargs.get("nuts") or {}),
    }
    if "target_accept" in sample_kwargs:
        options["target_accept"] = sample_kwargs["target_accept"]
    if "max_treedepth" in options:
        options["maxdepth"] = options.pop("max_treedepth")
    return options


def _check_known(sample_kwargs: dict[str, Any], nuts_sampler: str, function: str) -> None:
    """Refuse what neither ``pymc.sample`` nor the sampler, nor a function they call, would read."""
    parameters = inspect.signature(pm.sample).parameters.values()
    known = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
    known |= set(BESIDES)
    own = _own_arguments(nuts_sampler)
    if nuts_sampler == "pymc":
        known |= own.names
    if unknown := [name for name in sample_kwargs if name not in known]:
        raise TypeError(
            f"{function} does not take {unknown[0]}=, nor does pymc.sample with "
            f'nuts_sampler="{nuts_sampler}".{_hint(unknown[0], known, own)}'
        )
    if nuts_sampler == "pymc" and sample_kwargs.get("nuts_sampler_kwargs"):
        raise TypeError(
            "PyMC's own sampler does not read nuts_sampler_kwargs. Write nuts={...}, or name the "
            "sampler that they are for as nuts_sampler=."
        )
    idata_names = set(inspect.signature(pm.to_inference_data).parameters) - {"trace", "model"}
    takers = {
        "idata_kwargs": ("pymc.to_inference_data", _Own(idata_names, idata_names.__contains__))
    }
    # nobody knows what the others take
    groups = {"nutpie": ("nuts", "nuts_sampler_kwargs"), "pymc": ("nuts",)}.get(nuts_sampler, ())
    takers |= {group: (f"the sampler {nuts_sampler}", own) for group in groups}
    for group, (function, taken) in takers.items():
        for name in sample_kwargs.get(group) or {}:
            if not taken.has(name):
                suggestion = _suggestion(name, taken.names)
                raise TypeError(f"{group}: {function} has no argument {name}.{suggestion}")


def _hint(name: str, known: set[str], own: "_Own") -> str:
    if name in OTHER_NAMES:
        return f" Write {OTHER_NAMES[name]}=."
    if own.has(name) and name not in NUTPIE_SETTLED:
        return f" Write nuts={{{name!r}: ...}}."
    return _suggestion(name, known - set(RESERVED))


class _Own(NamedTuple):
    """The arguments of a sampler itself: the names to suggest, and whether it has one."""

    names: set[str]
    has: Callable[[str], bool]


def _own_arguments(nuts_sampler: str) -> _Own:
    if nuts_sampler == "pymc":
        names = _nuts_arguments()
        return _Own(names, names.__contains__)
    if nuts_sampler == "nutpie" and find_spec("nutpie"):
        names = {*_nutpie_signature(), *NUTPIE_ALIASES}
        suggested = {*_nutpie_signature(), *NUTPIE_SETTINGS} - NUTPIE_SETTLED
        return _Own(suggested, lambda name: name in names or _nutpie_has(name))
    return _Own(set(), lambda name: False)


def _nuts_arguments() -> set[str]:
    """Return what PyMC's own sampler takes; its classes hand on what they do not know."""
    classes = [cls for cls in pm.NUTS.__mro__ if "__init__" in vars(cls)]
    names = {name for cls in classes for name in inspect.signature(cls.__init__).parameters}
    return names - {"self", "vars", "model", "rng", "args", "kwargs"}


def _nutpie_signature() -> set[str]:
    import nutpie

    return set(inspect.signature(nutpie.sample).parameters) - {"kwargs"}


def _nutpie_has(name: str) -> bool:
    """Ask nutpie's settings themselves; they complain of the value only if they know the name."""
    from nutpie import _lib

    settings = _lib.PyNutsSettings.Diag(0)
    try:
        if hasattr(settings, "update"):
            settings.update({name: None})
        else:
            setattr(settings, name, None)
    except AttributeError:
        return False
    except Exception:
        return True
    return True


def _suggestion(name: str, names: Collection[str]) -> str:
    nearest = difflib.get_close_matches(name, sorted(names), 1)
    return f" Did you mean {nearest[0]}?" if nearest else ""
