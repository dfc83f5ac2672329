"""What merge itself warns of, and that its advice helps."""

import numpy as np
import pytest
from merged_groups import group

import arviz_swiss as az_swiss
from arviz_swiss import MergeWarning
from arviz_swiss.data.layout import Layout
from arviz_swiss.merging.warn import advise_skewed, suggest_transforms

BATCHES = 20


def scattered(rng, draw):
    return [draw(np.sqrt(BATCHES) * rng.standard_normal()) for _ in range(BATCHES)]


def flat_towards_zero(rng):
    """Draws of a scale that batches cannot bound from zero: on the log scale a long left tail."""
    log_tau = np.log(np.abs(rng.normal(0.3, 0.2, size=(4, 500))))
    return {"mu": rng.normal(rng.normal(), 1, size=(4, 500)), "tau": np.exp(log_tau)}


def test_a_scale_that_batches_cannot_bound_from_zero_is_warned_of():
    rng = np.random.default_rng(0)
    batches = [flat_towards_zero(rng) for _ in range(BATCHES)]
    options = {"kind": "fractionated", "transforms": {"tau": "log"}}
    with pytest.warns(az_swiss.MergeWarning, match="strongly skewed") as caught:
        merged = az_swiss.merge(batches, **options)
    (message,) = [str(one.message) for one in caught if "strongly skewed" in str(one.message)]
    assert "tau (-" in message
    assert "sample again with untransformed=['tau']" in message
    assert '"log"' not in message
    report = az_swiss.report(merged)
    (finding,) = [one for one in report.findings if one.flag == "skewed"]
    assert '"log"' not in finding.remedy
    assert "larger batches" in finding.remedy
    # The advice: on its own scale each batch is next to Gaussian, and so is their product.
    own = az_swiss.merge(batches, kind="fractionated")
    # Folding at zero moves a batch's mean from .3 to .312; that of 40,000 draws has an sd of .001.
    assert abs(float(own["posterior"]["tau"].mean()) - 0.312) < 0.005
    # The sd of the product is .2 / sqrt(20).
    assert abs(float(merged["posterior"]["tau"].mean()) - 0.3) > 0.2 / np.sqrt(20)


def test_a_positive_variable_on_its_own_scale_is_named_in_the_advice(exact_draws):
    rng = np.random.default_rng(1)
    # Log rates scatter as those of inflated batches do: by sqrt(B) of their sds.
    centres = 0.8 * np.sqrt(6) * rng.standard_normal(6)
    logs = [exact_draws(rng, [c], np.array([[0.64]]), draws=4000)[..., 0] for c in centres]
    batches = [{"rate": np.exp(one)} for one in logs]
    with pytest.warns(az_swiss.MergeWarning, match=r'transforms=\{"rate": "log"\}'):
        merged = az_swiss.merge(batches, kind="inflated")
    (finding,) = [one for one in az_swiss.report(merged).findings if one.flag == "skewed"]
    assert 'transforms={"rate": "log"}' in finding.remedy
    mended = az_swiss.merge(batches, kind="inflated", transforms={"rate": "log"})
    maps = mended["swiss_transform"]
    np.testing.assert_allclose(maps["pooled_mean"], [centres.mean()], rtol=1e-9)
    np.testing.assert_allclose(maps["pooled_covariance"], [[0.64]], rtol=1e-9)


def test_clean_batches_are_not_warned_of():
    rng = np.random.default_rng(2)
    batches = scattered(rng, lambda c: {"x": c + rng.standard_normal((4, 300, 3))})
    az_swiss.merge(batches, kind="inflated")


def test_chains_apart_are_warned_of():
    rng = np.random.default_rng(3)
    batches = scattered(rng, lambda c: {"x": c + rng.standard_normal((4, 300))})
    batches[7]["x"][0] += 3
    with pytest.warns(az_swiss.MergeWarning, match=r"chains lie apart: batch 7 .*\(x\)"):
        az_swiss.merge(batches, kind="inflated")


def test_divergent_batches_are_warned_of(to_container):
    rng = np.random.default_rng(4)
    diverging = np.zeros((4, 300), dtype=bool)
    few, many = diverging.copy(), diverging.copy()
    few[0, :3], many[:, :15] = True, True

    def merged_with(stats):
        return az_swiss.merge(
            [
                to_container({"x": c + rng.standard_normal((4, 300))}, sample_stats=one)
                for c, one in zip((-2.0, 0.0, 2.0), stats, strict=True)
            ],
            kind="inflated",
        )

    merged_with([{"diverging": diverging}, {"diverging": few}, {"diverging": few}])
    with pytest.warns(az_swiss.MergeWarning, match=r"divergent: batch 2 .*5% of draws"):
        merged_with([{"diverging": diverging}, {"diverging": few}, {"diverging": many}])


@pytest.mark.parametrize(
    ("kind", "transformed", "suggested", "words", "never"),
    [
        ("inflated", ["s"], {"s": "log"}, 'transforms={"s": None}', '"log"'),
        ("fractionated", ["s"], {"s": "log"}, "untransformed=['s']", '"log"'),
        ("inflated", [], {"s": "log"}, 'transforms={"s": "log"}', "None"),
        ("inflated", [], {"s": "logit"}, 'transforms={"s": "logit"}', "None"),
        ("inflated", [], {}, "larger batches", "transforms"),
    ],
)
def test_advice_on_skewed_variables(kind, transformed, suggested, words, never):
    text = advise_skewed(["s", "s"], transformed, suggested, kind)
    assert words in text
    assert never not in text


def test_a_probability_near_one_is_to_be_merged_on_the_logit_scale(exact_draws):
    rng = np.random.default_rng(6)
    centres = np.linspace(3, 5, 6)
    logits = [exact_draws(rng, [c], np.eye(1), draws=4000)[..., 0] for c in centres]
    batches = [{"p": 1 / (1 + np.exp(-one))} for one in logits]
    with pytest.warns(az_swiss.MergeWarning, match=r'transforms=\{"p": "logit"\}'):
        merged = az_swiss.merge(batches, kind="inflated")
    (finding,) = [one for one in az_swiss.report(merged).findings if one.flag == "skewed"]
    assert 'transforms={"p": "logit"}' in finding.remedy
    mended = az_swiss.merge(batches, kind="inflated", transforms={"p": "logit"})
    np.testing.assert_allclose(mended["swiss_transform"]["pooled_mean"], [centres.mean()])


def test_no_logarithm_is_advised_where_a_draw_is_negative_or_the_left_tail_is_long():
    rng = np.random.default_rng(7)
    logs = 1.5 * rng.standard_normal((6, 4, 2000)) + 1.5 * np.sqrt(6) * np.arange(6)[:, None, None]
    almost = np.exp(logs - logs.min())
    # One draw in 48,000, which a glance does not see.
    almost[0, 0, 1] = -0.01
    for batches in (almost, 100 - rng.exponential(size=(6, 4, 500))):
        with pytest.warns(az_swiss.MergeWarning, match="strongly skewed.*larger batches") as caught:
            az_swiss.merge([{"x": batch} for batch in batches], kind="inflated")
        assert not [one for one in caught if "transforms=" in str(one.message)]


def test_one_batch_may_be_skewed():
    batch = {"s": np.random.default_rng(8).lognormal(0, 1.2, size=(4, 500))}
    merged = az_swiss.merge([batch], kind="inflated")
    assert az_swiss.report(merged).findings == ()


def test_disagreement_is_warned_of_once_and_names_the_batch():
    rng = np.random.default_rng(0)
    batches = {f"n{k}": {"x": rng.standard_normal((2, 500))} for k in range(5)}
    batches["n3"]["x"] += 12
    with pytest.warns(MergeWarning, match=r"batches disagree .* batch 3 \(\"n3\"\)") as caught:
        az_swiss.merge(batches, kind="inflated")
    assert len(caught) == 1


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_few_draws_of_the_prior_are_corrected_for_or_warned_of():
    """The prior's precision is subtracted many times, and with it its bias."""
    rng = np.random.default_rng(0)
    size, count = 20, 10
    prior = {"x": rng.normal(size=(1, 500, size))}
    # a batch knows as much as the prior: precision 2, and the posterior 1 + count
    batches = [{"x": rng.normal(0, 2**-0.5, size=(4, 5000, size))} for _ in range(count)]
    with pytest.warns(MergeWarning, match=r"too large: 500 draws of the prior for 20 parameters"):
        plain = az_swiss.merge(batches, kind="full_prior", prior=prior)
    corrected = az_swiss.merge(batches, kind="full_prior", prior=prior, covariance="corrected")
    exact = (1 + count) ** -0.5
    off = [
        np.sqrt(np.trace(group(m, "swiss_transform")["pooled_covariance"].values) / size) / exact
        for m in (plain, corrected)
    ]
    # nine times the prior's error of (500 - 1) / (500 - 22) - 1 = 4.4%, over 11, halved for an sd
    assert off[0] > 1.015
    assert abs(off[1] - 1) < abs(off[0] - 1)


@pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")
def test_warns_of_shrinkage_with_the_figure():
    rng = np.random.default_rng(0)
    batches = [{"theta": rng.standard_normal((2, 100, 30))} for _ in range(5)]
    with pytest.warns(MergeWarning, match=r'sds are about (8|9|10)% too small.*"corrected"'):
        az_swiss.merge(batches, kind="inflated")


def test_a_warning_names_the_line_that_called_the_package():
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 200))} for _ in range(2)]
    with pytest.warns(MergeWarning, match="nothing says what the batches were sampled") as caught:
        az_swiss.merge(batches)
    assert {one.filename for one in caught} == {__file__}


def test_transforms_are_suggested_by_range_and_tail():
    variables = np.array(["s", "s", "p", "x", "n"])
    skewness = np.array([2.0, 3.0, -2.0, -2.0, 2.0])
    ranges = {"s": (0.1, 9.0), "p": (0.1, 0.99), "x": (1.0, 100.0), "n": (-1.0, 2.0)}
    assert suggest_transforms(variables, skewness, ranges) == {"s": "log", "p": "logit"}


def test_labels_are_made_no_more_often_where_more_is_skewed(monkeypatch):
    """ArviZ's labels take longer than the moments, so that one a parameter named is too many."""
    calls, make = [], Layout.labels
    monkeypatch.setattr(Layout, "labels", lambda self, *args: calls.append(1) or make(self, *args))
    counts = []
    for size in (2, 40):
        rng = np.random.default_rng(0)
        batches = [{"x": rng.lognormal(0, 1.5, size=(2, 400, size))} for _ in range(2)]
        calls.clear()
        with pytest.warns(MergeWarning, match="strongly skewed"):
            az_swiss.merge(batches, kind="inflated", covariance="diagonal")
        counts.append(len(calls))
    assert counts[0] == counts[1]
