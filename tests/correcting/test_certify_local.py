"""certify of merges whose batches have groups of their own: right models, and wrong ones."""

import numpy as np
import pymc as pm
import pytest
from group_models import make_groups, normal_groups

import arviz_swiss as az_swiss
from arviz_swiss.base.gaussian import gaussian
from arviz_swiss.base.weights import Change
from arviz_swiss.correcting.certificate import Evidence, judge
from arviz_swiss.correcting.densities import JointSpace
from arviz_swiss.correcting.ep_rounds import Effort
from arviz_swiss.correcting.evaluation import EvaluationFailed
from arviz_swiss.correcting.propagation import propagate_models
from arviz_swiss.data import containers
from arviz_swiss.merging.records import describe_skewed
from arviz_swiss.parallel.partition import partition, take

TABLE = make_groups(groups=24)
QUIET = {"progressbar": False, "random_seed": 1}
BATCHES = 3
PARTS = {
    f"b{at}": take(TABLE, index)
    for at, index in enumerate(partition(TABLE, BATCHES, groups="site", random_seed=0))
}


def groups_of(merged):
    return containers.read(merged).groups


def sampled(build):
    """Return the merged object of rounds over models of the parts, from a rough start."""
    return propagate_models(
        {label: build(part) for label, part in PARTS.items()},
        JointSpace(("level", "slope"), {"effect": 0}),
        gaussian(np.array([1.0, 0.5]), np.eye(2) / 100),
        {label: len(part) for label, part in PARTS.items()},
        Effort(8, 20, 80, 8),
        attrs={},
        coords={"site": TABLE["site"].unique()},
        executor=None,
        rng=np.random.default_rng(0),
        progressbar=False,
    )


@pytest.fixture(scope="module")
def merged():
    return sampled(normal_groups)


def other_groups(batch, sd=0.3, centre=0.0):
    """Build the model of the same rows with another likelihood, or another prior."""
    codes = batch["site"].factorize()[0]
    with pm.Model(coords={"site": batch["site"].unique()}) as model:
        level, slope = pm.Normal("level", centre, 3), pm.Normal("slope", 0, 2)
        effect = pm.Normal("effect", 0, 0.7, dims="site")
        mean = level + slope * batch["x"].to_numpy() + effect[codes]
        pm.Normal("y", mean, sd, observed=batch["y"])
    return model


def certificate_of(merged, build):
    models = {label: build(part) for label, part in PARTS.items()}
    return groups_of(az_swiss.certify(merged, models, **QUIET))["swiss_certificate"]


def test_the_right_model_is_certified_and_its_weights_are_equal(merged):
    certificate = certificate_of(merged, normal_groups)
    assert certificate.attrs["status"] == "certified"
    # all is Gaussian, so that the scores and integrals are exact: what differs is the last map
    assert float(certificate["effective_size"]) > 0.99 * certificate["log_weight"].size
    assert float(certificate["integral_noise"]) < 1e-6


def test_another_likelihood_is_not_certified(merged):
    with pytest.warns(az_swiss.MergeWarning, match="not from the density given for it"):
        certificate = certificate_of(merged, other_groups)
    assert certificate.attrs["status"] == "not certified"


def test_models_of_other_batches_are_refused(merged):
    models = [normal_groups(part) for part in reversed(PARTS.values())]
    with pytest.raises(ValueError, match="b0"):
        az_swiss.certify(merged, models, **QUIET)


def test_priors_that_differ_are_refused():
    centres = iter([0.0, 3.0, 6.0])
    with pytest.raises(ValueError, match='the prior of batch "b1" differs from that of batch "b0"'):
        sampled(lambda batch: other_groups(batch, 1.0, next(centres)))


def test_tilted_batches_that_were_merged_again_must_be_refined(merged):
    again = az_swiss.merge(az_swiss.subposteriors(merged), model=normal_groups(TABLE))
    with pytest.raises(ValueError, match=r"Refine the merge first: refine\(merged, models\)"):
        certificate_of(again, normal_groups)


def test_many_variables_a_group_can_be_sampled():
    def build(batch):
        codes = batch["site"].factorize()[0]
        with pm.Model(coords={"site": batch["site"].unique(), "part": range(15)}) as model:
            level, slope = pm.Normal("level", 0, 3), pm.Normal("slope", 0, 2)
            effect = pm.Normal("effect", 0, 0.2, dims=("site", "part"))
            mean = level + slope * batch["x"].to_numpy() + effect[codes].sum(axis=1)
            pm.Normal("y", mean, 1, observed=batch["y"])
        return model

    posterior = groups_of(sampled(build))["posterior"]
    assert np.isfinite(posterior["level"]).all()


def test_what_cannot_be_sampled_names_the_batch():
    def build(batch):
        model = normal_groups(batch)
        with model:
            # no density anywhere
            pm.Potential("nowhere", pm.math.log(-abs(model["effect"]).sum()))
        return model

    with pytest.raises(EvaluationFailed, match='batch "b'):
        sampled(build)


def evidence(**changed):
    change = Change(0.01, 0.02, 0.01, 0.02)
    given = {
        "khat": 0.2,
        "effective": 299.9,
        "weighed": 300,
        "draws": 4000,
        "change": change,
        "sampling_error": 0.0,
        "overlap_error": 0.0,
        "doubt": "",
        "bounded": [],
        "refined": True,
        "undone": False,
        "method": "swiss",
    }
    return Evidence(**given | changed)


@pytest.mark.parametrize("khat", [-0.1, 0.3, 0.8])
def test_a_skewed_parameter_is_never_certified(khat):
    assert judge(evidence(khat=khat)).status == "certified"
    verdict = judge(evidence(khat=khat, skewed=["tau"]))
    assert verdict.status == "usable"
    assert "tau" in verdict.reason and "softplus" in verdict.remedy


def test_skewed_parameters_in_words():
    assert "of tau is skewed" in describe_skewed(["tau"])
    assert "their mean" in describe_skewed(["tau", "rho"])
