"""What `divide.py` and `rivals.py` share: problems of the command line, each with a reference."""

import argparse
import tempfile
import warnings

import fresh
import numpy as np
import references
from problems import PROBLEMS


def make_parser(description):
    """Return a parser of problems, rows and the folder of references."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("problems", nargs="*", default=["flights"], metavar="problem")
    parser.add_argument("--rows", type=int, help="fewer rows, to try it out")
    parser.add_argument("--references", required=True, metavar="FOLDER")
    return parser


def parse(parser):
    """Return the arguments of this process; it ends if a problem is not known."""
    arguments = parser.parse_args()
    known = [name for name, problem in PROBLEMS.items() if problem.targets]
    if unknown := set(arguments.problems) - set(known):
        parser.error(f"no problem {', '.join(unknown)}. There are {', '.join(known)}.")
    warnings.simplefilter("ignore")
    return arguments


def each_problem(arguments):
    """Yield name, problem, path of the data and reference of each, and say which it is.

    The folder of the data goes with the next problem; others may put their files there.
    """
    for name in arguments.problems:
        problem = PROBLEMS[name]
        with tempfile.TemporaryDirectory() as folder:
            data = fresh.write_data(problem, arguments.rows or problem.rows, folder)
            with np.load(data) as file:
                rows, columns = file["X"].shape
            print(f"\n{name}: {problem.title}, {rows} x {columns}", flush=True)
            reference = references.load(name, problem, rows, data, arguments.references)
            print(f"reference: {reference}")
            yield name, problem, data, reference
