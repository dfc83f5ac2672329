"""Sub-posteriors of a random partition, and what is said of a merge of them once one is spoilt."""

import warnings
from dataclasses import replace

import numpy as np

import arviz_swiss as az_swiss
from arviz_swiss.checking.evidence import Evidence
from arviz_swiss.checking.statistics import draw_statistics
from arviz_swiss.merging.merged import open_merged


def partition(rng, count=6, size=3, chains=4, draws=250):
    """Sub-posteriors of a random partition, whose means scatter as they should."""
    return {
        f"b{b}": {
            "beta": rng.standard_normal((chains, draws, size))
            + np.sqrt(count) * rng.standard_normal(size)
        }
        for b in range(count)
    }


def merged_quietly(batches, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        return az_swiss.merge(batches, **{"kind": "inflated", **options})


def judged(batches, **options):
    return az_swiss.report(merged_quietly(batches, **options))


def named(report):
    return {label for finding in report.findings for label in finding.batches}


def flags(report):
    return [finding.flag for finding in report.findings]


def shift(draws):
    draws += 10 * np.sqrt(6)


def sound_evidence():
    """Return the evidence of a merge of six batches that nothing speaks against."""
    batches = partition(np.random.default_rng(2))
    merged = open_merged(merged_quietly(batches), "posterior")
    return Evidence(merged, draw_statistics(merged))


def with_group(evidence, name, dataset):
    """Return the evidence of a merge one group of which is another."""
    groups = {**evidence.merged.groups, name: dataset}
    return replace(evidence, merged=replace(evidence.merged, groups=groups))
