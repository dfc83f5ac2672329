"""main(): run one command; its errors and warnings are lines, its end is a code."""

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import arviz_swiss as az_swiss
from arviz_swiss.cli.commands import BROKEN_PIPE, FINE, INTERRUPTED, WRONG, Outcome
from arviz_swiss.cli.parser import PROGRAM, make_parser

# Errors whose text says all; of others it needs the type, too.
TOLD = (ValueError, TypeError, OSError, ImportError, RuntimeError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    _escape_what_cannot_be_printed()
    try:
        outcome = _run(argv)
        if outcome.text:
            print(outcome.text)
        sys.stdout.flush()
    except BrokenPipeError:
        # a reader such as head has what it wants: Python shall not complain of it at its end
        _close_output()
        return BROKEN_PIPE
    except OSError as error:
        _close_output()
        print(f"{PROGRAM}: error: standard output: {_describe(error)}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return outcome.code


def _escape_what_cannot_be_printed() -> None:
    """Let names that the terminal's encoding lacks be printed as escapes, and end no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _close_output() -> None:
    """Keep Python from writing at its end what could not be written before."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> Outcome:
    """Read the arguments, run the command that they name, and put errors in a line."""
    try:
        args, unknown = make_parser().parse_known_args(argv)
        if unknown:
            args.parser.refuse(unknown)
    except SystemExit as end:
        return Outcome(code=int(end.code or FINE))
    program = f"{PROGRAM} {args.command}"
    try:
        # what models and samplers print was not asked for
        with contextlib.redirect_stdout(sys.stderr), _warnings_in_lines(program, args.traceback):
            return args.run(args)
    # a density that calls sys.exit() while it is evaluated has written nothing: that is no success
    except (Exception, SystemExit) as error:
        if args.traceback:
            traceback.print_exc()
        print(f"{program}: error: {_describe(error)}", file=sys.stderr)
        return Outcome(code=WRONG)


@contextlib.contextmanager
def _warnings_in_lines(program: str, show_all: bool) -> Iterator[None]:
    """Show what is said about the merge, a line a warning; and all others where it is asked."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"{program}: warning: {_one_line(message)}", file=sys.stderr)

    with warnings.catch_warnings():
        if not show_all:
            warnings.simplefilter("ignore")
        warnings.simplefilter("always", az_swiss.MergeWarning)
        warnings.showwarning = show
        yield


def _describe(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    if isinstance(error, TOLD) and text:
        return _one_line(text)
    told = _one_line(f"{type(error).__name__}: {text}").removesuffix(":")
    return f"{told} (--traceback shows where)"


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
