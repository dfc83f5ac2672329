"""Run the experiments, write their pages: ``python notebooks/paper/run.py [--quick] [NAME ...]``.

What is finished is kept in .paper; run the same command again to go on where it stopped. With the
environment variable PARTITIONS=1 as many partitions of the data as that, instead of the paper's.
"""

import argparse
import importlib
import time

import matplotlib
import results

EXPERIMENTS = (
    "geometries",
    "scalability",
    "logistic_simulated",
    "logistic_real",
    "mixed_effects_sorts",
    "mixed_effects",
)


def main() -> None:
    """Run the experiments that the command line names; all of them when it names none."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", default=results.quick())
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(EXPERIMENTS):
        parser.error(f"no experiment {', '.join(unknown)}. There are {', '.join(EXPERIMENTS)}.")
    try:
        partitions = results.fewer_partitions()
    except ValueError as error:
        parser.error(str(error))
    matplotlib.use("agg")
    for name in arguments.names or EXPERIMENTS:
        start = time.monotonic()
        experiment = importlib.import_module(name)
        setting = experiment.QUICK if arguments.quick else experiment.FULL
        if "partitions" in setting._fields:
            setting = setting._replace(partitions=partitions or setting.partitions)
        experiment.write(setting, arguments.quick)
        page = results.PAGES / f"{results.page_name(name, arguments.quick)}.md"
        seconds = time.monotonic() - start
        print(f"{page.relative_to(results.ROOT)} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
