import numpy as np

import arviz_swiss as az_swiss
from arviz_swiss.checking.evidence import Evidence, Finding
from arviz_swiss.merging.merged import open_merged


def evidence(method="swiss", **options):
    rng = np.random.default_rng(0)
    batches = {name: {"x": rng.normal(size=(2, 200, 3))} for name in ("north", "south", "west")}
    merged = az_swiss.merge(batches, method=method, kind="inflated")
    return Evidence(open_merged(merged, "posterior"), az_swiss.report(merged).statistics, **options)


def test_broken_batches_in_the_order_of_the_merge():
    np.testing.assert_array_equal(
        evidence(broken=frozenset({"west", "north"})).is_broken, [True, False, True]
    )


def test_what_was_not_computed_is_unknown_and_of_the_right_shape():
    newly_made = evidence("consensus")
    assert newly_made.values("rhat").shape == (3, 3)
    assert newly_made.values("divergences").shape == (3,)
    assert np.isnan(newly_made.values("rhat")).all()
    assert not np.isnan(evidence().values("rhat")).any()


def test_without_a_certificate_nothing_is_certified():
    assert not evidence().is_certified


def test_a_finding_reads_as_what_and_remedy():
    assert str(Finding("odd", ("b1",), "b1 is odd.", "look at it.")) == (
        "b1 is odd. What to do: look at it."
    )
