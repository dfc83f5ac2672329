"""The commands and their options, which have the names of the functions' arguments."""

import argparse
import contextlib
import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import arviz_swiss as az_swiss
from arviz_swiss.cli import commands
from arviz_swiss.cli.commands import CODES, WRONG

PROGRAM = "arviz-swiss"
KIND = '"inflated", "fractionated" or "full_prior", where files do not say'
MODEL = "function without arguments that returns the plain PyMC model"
NETCDF = "the netCDF file to write"
CORRECTION = "FILE --density MODULE:NAME -o FILE"
SAME_NAMES = "Messages speak of the functions' arguments: what they call kind= is --kind here.\n"

# Examples, which end the help of each command.
MERGE = """\
examples:
  arviz-swiss merge b*.nc -o merged.nc
  arviz-swiss merge b*.nc --kind inflated --powers 20 -o merged.nc
  arviz-swiss merge b*.nc --transforms tau=log p=interval:0:1 --drop b7 -o merged.nc
  arviz-swiss merge b*.nc --into merged.zarr
  arviz-swiss merge b*.nc --method semiparametric --options bandwidth=0.5 -o merged.nc

Batches are called by what their files recorded (swiss_batch), else by the files' names.
"""
REPORT = """\
examples:
  arviz-swiss report merged.nc
  arviz-swiss report merged.nc --html report.html
  arviz-swiss report merged.nc --strict || echo "in doubt"
  arviz-swiss report merged.nc --json | jq -r '.findings[].batches[]'
"""
SUMMARY = """\
examples:
  arviz-swiss summary merged.nc
  arviz-swiss summary merged.nc --by parameter --var-names mu tau --round-to 3
  arviz-swiss summary merged.nc --json | jq '.b7.rhat'
"""
PLOT = """\
examples:
  arviz-swiss plot merged.nc -o batches.png
  arviz-swiss plot merged.nc --which shift --var-names beta -o shift.pdf
"""
APART = """\
examples:
  arviz-swiss moments north.nc -o moments/north.nc       # where the draws of north are
  arviz-swiss plan moments/*.nc -o plan.nc               # anywhere
  arviz-swiss apply plan.nc north.nc -o merged/north.nc  # where the draws of north are
"""
REFINE = """\
examples:
  arviz-swiss refine merged.nc --density models:density -o refined.nc

models.py, in this folder, says what the rows of each batch are:

  def density(label):
      return build(pandas.read_parquet(f"rows/{label}.parquet"))

where build makes a plain PyMC model; or any object with log_prior, log_likelihood, grad_log_prior
and grad_log_likelihood.
"""
CERTIFY = REFINE.replace("refine merged.nc", "certify refined.nc").replace(
    "-o refined.nc", "-o certified.nc"
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and where to read about them."""
        self.exit(WRONG, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Say which arguments are unknown, and which option the first is like."""
        like = difflib.get_close_matches(unknown[0].split("=")[0], self._option_string_actions, 1)
        hint = f": do you mean {like[0]}?" if like else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Merge the posteriors of data batches, one file each, into one posterior.",
        epilog=f"{PROGRAM} COMMAND --help has examples.\n\n{CODES}\n{SAME_NAMES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {az_swiss.__version__}")
    _add_traceback(parser, False)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for run, add_options, operands, shown in (
        (commands.run_merge, _add_merge, "FILE [FILE ...] (-o FILE | --into STORE)", MERGE),
        (commands.run_report, _add_report, "FILE", REPORT),
        (commands.run_summary, _add_summary, "FILE", SUMMARY),
        (commands.run_plot, _add_plot, "FILE -o FILE", PLOT),
        (commands.run_moments, _add_moments, "FILE -o FILE", APART),
        (commands.run_plan, _add_plan, "FILE [FILE ...] -o FILE", APART),
        (commands.run_apply, _add_apply, "PLAN FILE -o FILE", APART),
        (commands.run_refine, _add_correction, CORRECTION, REFINE),
        (commands.run_certify, _add_certify, CORRECTION, CERTIFY),
    ):
        name = run.__name__.removeprefix("run_")
        does = (run.__doc__ or "").removesuffix(".")
        command = subparsers.add_parser(
            name,
            usage=f"{PROGRAM} {name} {operands} [options]",
            help=f"{does[:1].lower()}{does[1:]}",
            description=f"{does}.",
            epilog=f"{shown}\n{CODES}\n{SAME_NAMES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(run=run, parser=command)
        add_options(command)
        _add_traceback(command, argparse.SUPPRESS)
    return parser


def _add_traceback(parser: Parser, default: Any) -> None:
    parser.add_argument(
        "--traceback",
        action="store_true",
        default=default,
        help="show where errors come from, and the warnings of other packages",
    )


def _add_merge(parser: Parser) -> None:
    _add_files(parser, "netCDF or zarr, one a batch")
    outputs = parser.add_mutually_exclusive_group(required=True)
    outputs.add_argument("-o", "--output", type=Path, metavar="FILE", help=NETCDF)
    help = "a zarr store to write, one batch in memory at a time"
    outputs.add_argument("--into", type=Path, metavar="STORE", help=help)
    _add_overwrite(parser)
    _add_merging(parser)
    _add_measuring(parser)
    _add_progress(parser)
    help = "of methods that draw random numbers"
    parser.add_argument("--random-seed", type=int, metavar="SEED", help=help)


def _add_moments(parser: Parser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="netCDF or zarr, the draws of a batch")
    _add_output(parser, "the netCDF file of moments to write")
    add("--label", help="what to call the batch, where its file does not say")
    add("--kind", help=KIND)
    add("--power", type=float, help="power of the likelihood")
    _add_measuring(parser)


def _add_plan(parser: Parser) -> None:
    _add_files(parser, "moments, one a batch")
    _add_output(parser, "the plan to write")
    _add_merging(parser)


def _add_apply(parser: Parser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="of all batches")
    parser.add_argument("file", metavar="FILE", help="the draws of a batch of the plan")
    _add_output(parser, "the netCDF file of this batch's merged draws to write")
    parser.add_argument("--label", help="the batch's label in the plan, to be sure")
    parser.add_argument("--model", metavar="MODULE:NAME", help=MODEL)


def _add_files(parser: Parser, help: str) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help=help)


def _add_merging(parser: Parser) -> None:
    """Add what says how to merge."""
    add = parser.add_argument
    add("--method", default="swiss", help='how to merge (default "swiss")')
    add("--kind", help=KIND)
    help = "powers of the likelihoods: one for all, one a file, or LABEL=POWER"
    add("--powers", nargs="+", action="extend", type=_power, metavar="POWER", help=help)
    add("--drop", nargs="+", action="extend", metavar="LABEL", help="batches to leave out")
    _add_pairs(parser, "--options", _option, "NAME=VALUE", "options of the method")


def _add_measuring(parser: Parser) -> None:
    """Add what says of which variables to take moments, and where."""
    add = parser.add_argument
    add("--prior", metavar="FILE", help="draws of the prior")
    help = "log, softplus, logit, interval:LOW:HIGH, simplex, ordered, ..., none"
    _add_pairs(parser, "--transforms", _transform, "NAME=TRANSFORM", help)
    _add_selection(parser)
    add("--covariance", default="sample", help="sample, corrected, shrunk or diagonal")
    add("--model", metavar="MODULE:NAME", help=MODEL)


def _add_report(parser: Parser) -> None:
    _add_merged(parser)
    _add_group(parser)
    help = "write it with tables and pictures into one file, too"
    parser.add_argument("--html", type=Path, metavar="FILE", help=help)
    _add_overwrite(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if it is in doubt")
    parser.add_argument("--json", action="store_true", help="for programs")


def _add_summary(parser: Parser) -> None:
    _add_merged(parser)
    parser.add_argument("--by", choices=["batch", "parameter"], default="batch")
    _add_selection(parser)
    parser.add_argument("--round-to", type=int, metavar="DECIMALS")
    parser.add_argument("--json", action="store_true", help="for programs, in full precision")


def _add_plot(parser: Parser) -> None:
    _add_merged(parser)
    _add_output(parser, "the picture to write: png, pdf, svg, ...")
    add = parser.add_argument
    help = (
        "densities before and after, means in order, Q against chance, two parameters step by "
        "step, rounds of refine, or weights of certify"
    )
    choices = ["batches", "shift", "agreement", "maps", "refine", "certificate"]
    add("--which", choices=choices, default="batches", help=help)
    _add_selection(parser)
    add(
        "--ci-prob",
        type=float,
        metavar="P",
        help="of intervals and ellipses (not batches, certificate)",
    )
    add("--reference", metavar="FILE", help="a posterior of all data to draw, too (batches)")


def _add_correction(parser: Parser) -> None:
    _add_merged(parser)
    help = "function that takes a batch's label and returns its density"
    parser.add_argument("--density", required=True, metavar="MODULE:NAME", help=help)
    _add_output(parser, NETCDF)
    _add_group(parser)
    _add_progress(parser)
    parser.add_argument("--random-seed", type=int, metavar="SEED")


def _add_certify(parser: Parser) -> None:
    _add_correction(parser)
    parser.add_argument("--draws", type=int, metavar="N", help="about how many draws to weigh")


def _add_merged(parser: Parser) -> None:
    parser.add_argument("merged", metavar="FILE", help="a merged posterior")


def _add_output(parser: Parser, help: str) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=help)
    _add_overwrite(parser)


def _add_overwrite(parser: Parser) -> None:
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")


def _add_progress(parser: Parser) -> None:
    help = "show no progress bar, which only a terminal does"
    parser.add_argument("--no-progress", dest="progress", action="store_false", help=help)


def _add_selection(parser: Parser) -> None:
    add, help = parser.add_argument, 'as in ArviZ; "~name" leaves one out'
    add("--var-names", nargs="+", action="extend", metavar="NAME", help=help)
    add("--filter-vars", choices=["like", "regex"], help="how to read the names")
    _add_group(parser)


def _add_group(parser: Parser) -> None:
    help = 'the group that holds the draws (default "posterior")'
    parser.add_argument("--group", default="posterior", help=help)


def _add_pairs(
    parser: Parser, name: str, pair: Callable[[str], Any], metavar: str, help: str
) -> None:
    parser.add_argument(
        name, nargs="+", action="extend", type=pair, default=[], metavar=metavar, help=help
    )


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def _power(text: str) -> float | tuple[str, float]:
    """Read POWER or LABEL=POWER."""
    label, value = _split(text) if "=" in text else ("", text)
    try:
        power = float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, got {value!r}") from None
    return (label, power) if label else power


def _transform(text: str) -> tuple[str, Any]:
    """Read NAME=TRANSFORM, where bounds follow after colons."""
    name, value = _split(text)
    transform, *bounds = value.split(":")
    if not bounds:
        return name, None if transform == "none" else transform
    try:
        return name, (transform, *map(float, bounds))
    except ValueError:
        raise argparse.ArgumentTypeError(f"bounds must be numbers, got {value!r}") from None


def _option(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, where numbers, true and false are meant as such."""
    name, value = _split(text)
    with contextlib.suppress(ValueError):
        return name, json.loads(value)
    return name, value
