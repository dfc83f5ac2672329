"""What each command does: read its files, call one function of the package, print or save."""

import argparse
import inspect
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import arviz_swiss as az_swiss
from arviz_swiss.cli.files import (
    call_function,
    check_inputs,
    check_netcdf,
    check_output,
    check_page,
    check_store,
    load_function,
    save,
    save_picture,
)

FINE, IN_DOUBT, WRONG, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141

CODES = """\
exit codes:
  0    done
  1    done, but the merge is in doubt (report --strict) or not certified (certify)
  2    wrong usage or input, said in one line on standard error; nothing is written
  130  interrupted
  141  the reader of the output left early, as head does
"""


class Outcome(NamedTuple):
    """What was asked for, if it is text, and the exit code."""

    text: str = ""
    code: int = FINE


def run_merge(args: argparse.Namespace) -> Outcome:
    """Merge the draws of batches, one file each, into one posterior."""
    check_inputs(*args.files, args.prior)
    if args.into is None:
        check_netcdf(args.output, args.overwrite, inputs=args.files)
    else:
        check_store(args.into, args.overwrite, inputs=args.files)
    merged = az_swiss.merge(
        args.files,
        random_seed=args.random_seed,
        into=args.into,
        overwrite=args.overwrite,
        progressbar=args.progress,
        **_measuring(args),
        **_merging(args),
        **_options(args),
    )
    if args.into is None:
        save(merged, args.output)
    return Outcome()


def run_moments(args: argparse.Namespace) -> Outcome:
    """Write what a merge needs to know of one batch, without its draws."""
    check_inputs(args.file, args.prior)
    check_netcdf(args.output, args.overwrite, inputs=[args.file])
    moments = az_swiss.moments(
        args.file, label=args.label, kind=args.kind, power=args.power, **_measuring(args)
    )
    moments.save(args.output)
    return Outcome()


def run_plan(args: argparse.Namespace) -> Outcome:
    """Plan a merge from the moments of all batches, one file each."""
    check_inputs(*args.files)
    check_netcdf(args.output, args.overwrite, inputs=args.files)
    az_swiss.plan(args.files, **_merging(args), **_options(args)).save(args.output)
    return Outcome()


def run_apply(args: argparse.Namespace) -> Outcome:
    """Move the draws of one batch by a plan."""
    check_inputs(args.plan, args.file)
    check_netcdf(args.output, args.overwrite, inputs=[args.plan, args.file])
    plan = az_swiss.plan(args.plan)
    save(plan.apply(args.file, label=args.label, model=_model(args)), args.output)
    return Outcome()


def run_report(args: argparse.Namespace) -> Outcome:
    """Say in words whether to trust a merge, and what to do."""
    check_inputs(args.merged)
    if args.html is not None:
        check_page(args.html, args.overwrite, inputs=[args.merged])
    elif args.overwrite:
        raise ValueError("--overwrite is of --html, which was not given.")
    verdict = az_swiss.report(args.merged, group=args.group)
    if args.html is not None:
        os.environ["MPLBACKEND"] = "Agg"  # there may be no screen
        verdict.to_html(args.html, overwrite=args.overwrite)
    code = IN_DOUBT if args.strict and verdict.is_in_doubt else FINE
    if not args.json:
        return Outcome(str(verdict), code)
    fields = {
        "is_in_doubt": verdict.is_in_doubt,
        "status": verdict.status,
        "verdict": verdict.verdict,
        "findings": [finding._asdict() for finding in verdict.findings],
        "notes": verdict.notes,
    }
    return Outcome(json.dumps(fields, indent=2), code)


def run_summary(args: argparse.Namespace) -> Outcome:
    """Print the statistics of a merge as a table."""
    check_inputs(args.merged)
    table = az_swiss.summary(args.merged, by=args.by, round_to=args.round_to, **_selection(args))
    if not args.json:
        return Outcome(table.to_string())
    # by way of objects: JSON has no NaN, and pandas itself would cut digits
    plain = table.astype(object).where(table.notna(), None)
    return Outcome(json.dumps(plain.to_dict(orient="index"), indent=2))


def run_plot(args: argparse.Namespace) -> Outcome:
    """Draw the batches of a merge."""
    check_inputs(args.merged, args.reference)
    check_output(args.output, args.overwrite, inputs=[args.merged])
    os.environ["MPLBACKEND"] = "Agg"  # there may be no screen
    own = {"ci_prob": args.ci_prob, "reference": args.reference}
    given = {name: value for name, value in own.items() if value is not None}
    takes = {"batches": {"reference"}, "certificate": set()}.get(args.which, {"ci_prob"})
    if odd := [f"--{name.replace('_', '-')}" for name in given if name not in takes]:
        raise ValueError(f"--which {args.which} takes no {odd[0]}.")
    draw = getattr(az_swiss, f"plot_{args.which}")
    selection = _selection(args)
    if args.which == "agreement":
        # it is of all parameters
        if chosen := [name for name, value in selection.items() if value and name != "group"]:
            raise ValueError(f"--which agreement takes no --{chosen[0].replace('_', '-')}.")
        selection = {"group": args.group}
    collection = draw(args.merged, **selection, **given, backend="matplotlib")
    save_picture(collection.viz["figure"].item(), args.output)
    return Outcome()


def run_refine(args: argparse.Namespace) -> Outcome:
    """Remove the error of a merge by gradients of the full log density."""
    refined = _correct(az_swiss.refine, args)
    return Outcome(_read_merged(refined, args.group).refinement.describe())


def run_certify(args: argparse.Namespace) -> Outcome:
    """Weigh merged draws against the full posterior: certified or not."""
    certified = _correct(az_swiss.certify, args, draws=args.draws)
    certificate = _read_merged(certified, args.group).certificate
    text = f"{certificate.verdict.status} (k-hat {certificate.khat:.2f})"
    return Outcome(text, FINE if certificate.is_certified else IN_DOUBT)


def _correct(correct: Callable, args: argparse.Namespace, **options: Any) -> Any:
    """Return what refine or certify makes of a merge and the densities of its batches; save it."""
    check_inputs(args.merged)
    check_netcdf(args.output, args.overwrite)
    density = load_function(args.density)
    labels = _read_merged(args.merged, args.group).labels
    corrected = correct(
        args.merged,
        {label: _density(density, args.density, label) for label in labels},
        group=args.group,
        random_seed=args.random_seed,
        progressbar=args.progress,
        **options,
    )
    save(corrected, args.output)
    return corrected


def _read_merged(merged: Any, group: str) -> Any:
    from arviz_swiss.merging.merged import open_merged

    return open_merged(merged, group)


def _density(function: Callable, name: str, label: str) -> Any:
    try:
        return call_function(function, name, label)
    except ValueError as error:
        raise ValueError(f'batch "{label}": {error}') from error


def _selection(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("var_names", "filter_vars", "group")}


def _measuring(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments by which moments of batches are taken."""
    return {
        **_selection(args),
        "prior": args.prior,
        "transforms": _mapping("--transforms", args.transforms) or None,
        "covariance": args.covariance,
        "model": _model(args),
    }


def _merging(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that say how to merge."""
    return {
        "method": args.method,
        "kind": args.kind,
        "powers": _powers(args.powers),
        "drop": args.drop,
    }


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the method, of which none may be an argument of `merge`."""
    options = _mapping("--options", args.options)
    arguments = inspect.signature(az_swiss.merge).parameters
    for name in options:
        if name in arguments:
            remedy = f": pass --{name.replace('_', '-')}" if hasattr(args, name) else ""
            raise ValueError(f"--options: {name} is no option of a method{remedy}.")
    return options


def _mapping(option: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a mapping, where no name may come twice."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{option} names {repeated} more than once.")
    return mapping


def _model(args: argparse.Namespace) -> Any:
    return call_function(load_function(args.model), args.model) if args.model else None


def _powers(given: Sequence[Any] | None) -> Any:
    """Return powers as `merge` takes them: none, one, one a file, or by label."""
    if not given:
        return None
    named = [power for power in given if isinstance(power, tuple)]
    if named and len(named) < len(given):
        raise ValueError("--powers mixes numbers with LABEL=POWER: name all batches, or none.")
    if named:
        return _mapping("--powers", named)
    return given[0] if len(given) == 1 else list(given)
