"""What a report tells in tables: what was merged, how long it took, by which settings."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from arviz_swiss.data import schema
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.merged import Merged
from arviz_swiss.merging.space import MODEL

# A row of a table: what it is, and what it says.
Row = tuple[str, str]

MOST_NAMED = 10
# Attributes of the draws that no other part of a report tells, and that are not about a machine.
SETTINGS = (
    schema.TRANSFORMS,
    schema.RESCALED,
    schema.RANDOM_SEED,
    schema.PARTITION,
    schema.DATA,
    schema.GROUPS_BY,
    schema.STRATIFY_BY,
    schema.SHARED,
    schema.RESAMPLED,
)
PACKAGES = ("arviz-swiss", "arviz", "xarray", "numpy", "scipy", "pymc", "nutpie")


def merge_rows(merged: Merged) -> Iterator[Row]:
    """Give what was merged, and from what."""
    maps, labels, parameters = merged.maps, merged.labels, merged.parameters.tolist()
    yield "Method", merged.method
    powers = f", {_powers(maps['power'].values)}" if merged.kind == "inflated" else ""
    yield "From", f"{merged.kind} sub-posteriors{powers}"
    yield "Batches", f"{len(labels)}: {brief(labels, MOST_NAMED)}"
    if "size" in maps and np.isfinite(maps["size"]).all():
        yield "Rows", f"{int(maps['size'].sum()):,}"
    yield "Parameters", f"{len(parameters)}: {brief(parameters, MOST_NAMED)}"
    if own := merged.attrs.get(schema.LOCAL):
        yield "Of single batches", own.replace(",", ", ").replace("  ", " ")
    yield "Merged in", _space(merged)
    chains, draws = merged.sizes
    yield "Draws", f"{chains * draws:,} in {chains} chains of {draws}"
    if (certificate := merged.certificate) is not None:
        size, count = certificate.dataset["effective_size"], certificate.dataset["log_ratio"].size
        yield (
            "Certificate",
            f"{certificate.verdict.status}: k-hat {certificate.khat:.2f}, {float(size):.0f} "
            f"effective of {int(certificate.dataset.get('weighed', count))} weighed draws",
        )
    else:
        yield "Certificate", "none"


def _powers(powers: np.ndarray) -> str:
    low, high = f"{powers.min():.4g}", f"{powers.max():.4g}"
    return f"likelihoods to the power {low}{'' if low == high else f' to {high}'}"


def _space(merged: Merged) -> str:
    if merged.attrs.get(schema.SPACE) == MODEL:
        return "the unconstrained space of the model"
    if merged.transformed:
        return f"their own space, but {brief(merged.transformed, MOST_NAMED)} transformed"
    return "their own space"


def time_rows(merged: Merged) -> list[tuple[str, str, str]]:
    """Return stages with the seconds that each took, by the clock and of this processor."""
    run = merged.groups.get(schema.RUN)
    if run is None or "stage" not in run:
        return []
    wall, cpu = run["seconds"].values, run["cpu_seconds"].values
    names = [*run["stage"].values.astype(str).tolist(), "in all"]
    numbers = zip([*wall, wall.sum()], [*cpu, cpu.sum()], strict=True)
    return [
        (name, *(f"{seconds:.1f}" for seconds in both))
        for name, both in zip(names, numbers, strict=True)
    ]


def setting_rows(merged: Merged) -> list[Row]:
    """Return what was recorded of the merge, by what it means."""
    attrs, maps = merged.attrs, merged.maps.attrs
    meanings = schema.ATTRIBUTES[schema.POSTERIOR]
    rows = [(meanings[name], str(attrs[name])) for name in SETTINGS if attrs.get(name)]
    meanings = schema.ATTRIBUTES[schema.TRANSFORM]
    names = (schema.COVARIANCE_ESTIMATOR, schema.KIND_FROM)
    rows += [(meanings[name], str(maps[name])) for name in names if name in maps]
    library = [attrs.get(f"inference_library{end}", "") for end in ("", "_version")]
    if library[0]:
        rows.append(("Sampled with", " ".join(map(str, library)).strip()))
    return [(meaning.rstrip("."), value) for meaning, value in rows]


def version_rows() -> Iterator[Row]:
    """Give what the report was made with."""
    yield "Python", platform.python_version()
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue
