"""Files of moments and plans, and moments that do not fit together."""

import json

import numpy as np
import pytest
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, files, schema

pytestmark = pytest.mark.filterwarnings("ignore::arviz_swiss.MergeWarning")


def draws(seed=0, **more):
    rng = np.random.default_rng(seed)
    made = {"mu": rng.normal(size=(2, 100)), "tau": rng.gamma(4, size=(2, 100))}
    return made | {name: rng.normal(size=shape) for name, shape in more.items()}


def told(seed=0, label="south", kind="inflated", more=None, **options):
    return az_swiss.moments(draws(seed, **(more or {})), label=label, kind=kind, **options)


@pytest.fixture
def saved(tmp_path):
    """The path of moments, and that of a plan."""
    north = told(label="north").save(tmp_path / "north.nc")
    plan = az_swiss.plan([north, told(1)])
    return north, plan.save(tmp_path / "plan.nc")


def openers(saved):
    north, plan = saved
    return [(north, lambda: az_swiss.plan([north])), (plan, lambda: az_swiss.plan(plan))]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("length", [0, 100, 0.5, 0.99])
def test_a_truncated_file(saved, which, length):
    path, reopen = openers(saved)[which]
    content = path.read_bytes()
    path.write_bytes(content[: int(length * len(content)) if length < 1 else length])
    with pytest.raises(ValueError, match=rf"file .*{path.name} could not be read.*complete file"):
        reopen()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("version", "remedy"), [(2, "Update arviz_swiss"), (0, "Write it again"), (None, "Write it")]
)
def test_another_version(saved, which, version, remedy):
    path, reopen = openers(saved)[which]
    main = (schema.MOMENTS, schema.PLAN)[which]
    groups = files.read_groups(path, main, "")
    del groups[main].attrs[schema.FORMAT]
    groups[main].attrs |= {} if version is None else {schema.FORMAT: version}
    files.write_groups(path, groups)
    with pytest.raises(ValueError, match=rf"has format {version}, but .* reads format 1. {remedy}"):
        reopen()


def spoil(path, main, change):
    groups, record = files.read_groups(path, main, ""), None
    record = json.loads(groups[main].attrs[schema.RECORD])
    change(groups, record)
    groups[main].attrs[schema.RECORD] = json.dumps(record)
    files.write_groups(path, groups)


def without(groups, name):
    return {schema.TRANSFORM: groups[schema.TRANSFORM].drop_vars(name)}


@pytest.mark.parametrize("which", [0, 1])
def test_a_record_that_is_none(saved, which):
    path, reopen = openers(saved)[which]
    main = (schema.MOMENTS, schema.PLAN)[which]
    groups = files.read_groups(path, main, "")
    groups[main].attrs[schema.RECORD] = "3"
    files.write_groups(path, groups)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged: its attribute swiss_record"):
        reopen()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label": 0}, "label must be text that names the batch, got 0"),
        ({"label": ""}, "label must be text that names the batch, got ''"),
        ({"power": [2.0]}, r"power must be one number, that of this batch, got \[2.0\]"),
    ],
)
def test_arguments_of_no_one_batch(options, text):
    with pytest.raises(TypeError, match=text):
        told(**{"label": "north", **options})


@pytest.mark.parametrize(
    ("which", "change", "text"),
    [
        (0, lambda groups, _: groups.pop(schema.VARIABLES_OF_DRAWS), "no swiss_variables"),
        (0, lambda _, record: record.pop("fingerprint"), "no fingerprint"),
        (0, lambda groups, _: groups[schema.MOMENTS]["mean"].values.fill(np.nan), "mean is not"),
        (1, lambda groups, _: groups.pop(schema.TRANSFORM), "no swiss_transform"),
        (1, lambda _, record: record.pop("names"), "no names"),
        # a name that the file has elsewhere stands for no other
        (0, lambda _, record: record.pop("covariance"), "no covariance"),
        (0, lambda groups, _: groups[schema.MOMENTS]["draws"].values.fill(-5), "draws is -5"),
        (1, lambda groups, _: groups[schema.TRANSFORM]["scale"].values.fill(np.nan), "scale is"),
        (1, lambda groups, _: groups.update(without(groups, "scale")), "no scale"),
    ],
)
def test_a_file_that_lacks_something(saved, which, change, text):
    path, reopen = openers(saved)[which]
    spoil(path, (schema.MOMENTS, schema.PLAN)[which], change)
    with pytest.raises(ValueError, match=rf"{path.name} is damaged: .*{text}.*Write it again with"):
        reopen()


def test_changed_moments(saved):
    def change(groups, _):
        groups[schema.MOMENTS]["covariance"].values[...] = -1.0

    spoil(saved[0], schema.MOMENTS, change)
    with pytest.raises(ValueError, match=r'batch 0 \("north"\), file .*not positive definite'):
        az_swiss.plan([saved[0]])


def test_files_of_another_type(saved, tmp_path):
    north, plan = saved
    posterior = containers.read(draws()).groups["posterior"]
    files.write_groups(tmp_path / "draws.nc", {"posterior": posterior})
    with pytest.raises(ValueError, match=r"plan.nc holds a plan, not moments. Pass what moments"):
        az_swiss.plan([plan])
    with pytest.raises(ValueError, match=r"north.nc holds moments, not a plan"):
        az_swiss.plan(north)
    with pytest.raises(ValueError, match=r"draws.nc holds draws, not moments"):
        az_swiss.plan([tmp_path / "draws.nc"])
    with pytest.raises(ValueError, match=r"no file or folder .*nowhere.nc"):
        az_swiss.plan([tmp_path / "nowhere.nc"])


def test_a_file_of_moments_is_opened_as_it_is(saved):
    north = az_swiss.moments(saved[0])
    assert north.label == "north"
    assert az_swiss.moments(saved[0], label="east").label == "east"
    with pytest.raises(ValueError, match=r"made already, which kind=, transforms= cannot change"):
        az_swiss.moments(saved[0], kind="inflated", transforms={"tau": "log"})
    with pytest.raises(ValueError, match=r"which group=, covariance= cannot .*Take moments of the"):
        az_swiss.moments(saved[0], group="prior", covariance="diagonal")


def test_a_file_of_a_plan_is_opened_as_it_is(saved):
    assert az_swiss.plan(saved[1], method="swiss").labels == ["north", "south"]
    with pytest.raises(ValueError, match=r"a plan, made already, which method=, drop=, x= cannot"):
        az_swiss.plan(saved[1], method="pool", drop="north", x=None)
    powers = np.array([2.0, 2.0])
    with pytest.raises(ValueError, match=r"kind=, powers= cannot change. Plan again from the mom"):
        az_swiss.plan(saved[1], kind="fractionated", powers=powers)


def test_moments_hold_no_draw_and_no_row(tmp_path):
    """Nothing in the file is as long as the draws, or equal to one of them."""
    rng = np.random.default_rng(0)
    values, rows = rng.normal(size=(2, 700)), rng.normal(size=331)
    posterior = xr.Dataset({"mu": (("chain", "draw"), values)})
    observed = xr.Dataset(
        {"y": ("row", rows)}, coords={"row": [f"patient {k}" for k in range(331)]}
    )
    batch = containers.build({"posterior": posterior, "observed_data": observed})
    path = az_swiss.moments(batch, label="north").save(tmp_path / "north.nc")
    assert path.stat().st_size < 20_000
    content = path.read_bytes()
    assert b"patient" not in content
    for value in (*values.ravel(), *rows):
        assert value.tobytes() not in content
        # the record is text: so many digits of a number are no chance
        assert repr(float(value))[:12].encode() not in content


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(OSError, match=r"m.nc could not be written: No such file or directory"):
        told().save(tmp_path / "nowhere" / "m.nc")
    assert not list(tmp_path.iterdir())


FIT = [
    (told(0, more={"z": (2, 100)}), r'"north"\) has no variable z, which batch 1 \("south"\) has'),
    (told(1, transforms={"tau": "log"}), r'"south"\), variable tau: transform \'log\', but None'),
    (told(1, kind="fractionated"), r"kind='inflated', those of .*kind='fractionated'. Take the"),
    (told(1, kind=None), r"kind='inflated', those of .*without kind=. Pass kind='inflated' to"),
    (told(1, power=2.0), "batch north were taken without power=.*Pass the powers of all"),
    (told(1, covariance="diagonal"), r"covariance 'diagonal', .*Take the moments of all"),
    (told(1, label="north"), 'positions 0 and 1 are both of batch "north". Give each batch once'),
    (told(0), "have the same draws: its rows would count twice"),
]


@pytest.mark.parametrize(("other", "text"), FIT)
def test_moments_that_do_not_fit_together(other, text):
    with pytest.raises(ValueError, match=text):
        az_swiss.plan([told(label="north"), other])


def test_other_shapes_and_labels():
    def shaped(label, length):
        return told(len(label), label, more={"beta": (2, 100, length)})

    with pytest.raises(ValueError, match=r'variable beta: its labels differ.*var_names="~beta"'):
        az_swiss.plan([shaped("north", 2), shaped("east", 3)])
    with pytest.raises(ValueError, match=r"variable tau: dimensions .*'tau_dim_0'\), but"):
        az_swiss.plan([told(label="north"), told(1, more={"tau": (2, 100, 2)})])


def test_elements_that_are_transformed_together_must_be_in_one_order():
    def shares(seed, labels):
        values = np.random.default_rng(seed).dirichlet([3, 4, 5], size=(2, 100))
        return xr.Dataset({"p": (("chain", "draw", "k"), values)}, coords={"k": list(labels)})

    options = {"kind": "inflated", "transforms": {"p": "simplex"}}
    told = {n: az_swiss.moments(shares(len(n), n), **options) for n in ("abc", "cab")}
    with pytest.raises(
        ValueError, match=r'"cab"\), variable p: its labels along k come in another'
    ):
        az_swiss.plan(told)
    other = shares(3, "cab").sel(k=list("abc"))
    az_swiss.plan({"abc": told["abc"], "cab": az_swiss.moments(other, **options)})


@pytest.mark.parametrize(
    ("moments", "text"),
    [
        (told(), "got one BatchMoments. Put them in a list"),
        ([draws()], "plan takes what moments returned, .*got dict"),
        (3, "plan takes a list of moments"),
    ],
)
def test_no_moments(moments, text):
    with pytest.raises(TypeError, match=text):
        az_swiss.plan(moments)


def test_methods_that_need_all_draws_are_not_planned():
    with pytest.raises(ValueError, match=r'Methods that can are "swiss", "recentre", "location_s'):
        az_swiss.plan([told()], method="consensus")


def test_the_prior_is_told_with_the_moments():
    """What the errors advise gives what merge gives."""
    both = [told(0, "a", kind="full_prior"), told(1, "b", kind="full_prior")]
    with pytest.raises(ValueError, match='moments of a batch again with kind="full_prior" and pri'):
        az_swiss.plan(both)
    rng = np.random.default_rng(3)
    prior = {"mu": rng.normal(0, 9, size=(2, 100)), "tau": rng.gamma(2, 9, size=(2, 100))}
    with pytest.raises(TypeError, match=r"no argument prior: .*Take the moments again with prior"):
        az_swiss.plan(both, prior=prior)
    plan = az_swiss.plan([told(0, "a", kind="full_prior", prior=prior), both[1]])
    merged = az_swiss.merge({"a": draws(0), "b": draws(1)}, kind="full_prior", prior=prior)
    part = plan.apply(draws(1))["posterior"]["mu"].values
    np.testing.assert_allclose(part, merged["posterior"]["mu"].values[2:], rtol=1e-10)
    with pytest.raises(ValueError, match="as prior= to moments, of one batch at least"):
        az_swiss.plan(
            [told(0, "a", kind="inflated", power=4.0), told(1, "b", kind="inflated", power=4.0)]
        )
    with pytest.raises(TypeError, match=r"others are arguments of plan itself. Did you mean drop="):
        az_swiss.plan(both, dropp="a")


def test_the_kind_of_the_moments_holds():
    """Local variables and draws of the prior went along, or not, by the kind."""
    pair = [told(0, "a"), told(1, "b")]
    with pytest.raises(ValueError, match=r"batch 0 .*kind='inflated'. Leave kind out, or take the"):
        az_swiss.plan(pair, kind="fractionated")
    assert az_swiss.plan(pair, kind="inflated").labels == ["a", "b"]
    advised = az_swiss.plan([told(0, "a"), told(1, "b", kind=None)], kind="inflated")
    assert advised.groups[schema.TRANSFORM].equals(az_swiss.plan(pair).groups[schema.TRANSFORM])


def test_draws_of_no_batch_and_of_another():
    plan = az_swiss.plan([told(label="north"), told(1)])
    with pytest.raises(ValueError, match=r"of any batch of the plan. Pass those draws.*north, so"):
        plan.apply(draws(7))
    with pytest.raises(ValueError, match=r'They are batch 0 \("north"\)'):
        plan.apply(draws(0), label="south")
    with pytest.raises(ValueError, match=r'no batch "east": its batches are north, south'):
        plan.apply(draws(0), label="east")
    with pytest.raises(ValueError, match=r"has no variable tau, which is merged"):
        plan.apply({"mu": draws()["mu"]})
    assert plan.apply(draws(1))["posterior"]["batch"].values.tolist() == ["south"] * 2


def test_other_draws_of_the_prior_for_each_batch():
    priors = [{"mu": draws(s)["mu"], "tau": draws(s)["tau"]} for s in (5, 6)]
    both = [told(k, f"b{k}", "full_prior", prior=prior) for k, prior in enumerate(priors)]
    with pytest.raises(
        ValueError, match=r'batch 1 \("b1"\) and batch 0 .* other draws of the prior'
    ):
        az_swiss.plan(both)


class Root:
    """A transform of a user's own."""

    forward, backward = staticmethod(np.sqrt), staticmethod(np.square)


def own(function, inverse):
    """Return another transform of that name."""
    return type("Root", (), {"forward": staticmethod(function), "backward": staticmethod(inverse)})


@pytest.mark.parametrize(
    "pair",
    [
        (("interval", 0, 50), ("interval", 0, 60)),
        (Root(), own(np.log, np.exp)()),
    ],
)
def test_transforms_of_one_name_that_lead_elsewhere(pair):
    first, second = (
        told(seed, label, transforms={"tau": transform})
        for seed, (label, transform) in enumerate(zip(("north", "south"), pair, strict=True))
    )
    with pytest.raises(ValueError, match=r'"south"\), variable tau: .*transforms= and model='):
        az_swiss.plan([first, second])


def test_draws_that_are_elsewhere_than_their_moments():
    batches = [told(seed, str(seed), transforms={"tau": Root()}) for seed in (0, 1)]
    plan = az_swiss.plan(batches)
    plan.apply(draws(0), transforms={"tau": Root()})
    single = {name: values.astype(np.float32) for name, values in draws(0).items()}
    plan.apply(single, transforms={"tau": Root()})
    with pytest.raises(ValueError, match=r"not where their moments were taken, by tau: labels"):
        plan.apply(draws(0), transforms={"tau": own(np.log, np.exp)()})


def test_labels_that_were_exchanged():
    def batch(seed, labels):
        values = np.random.default_rng(seed).normal([0, 5, 9], size=(2, 100, 3))
        return xr.Dataset({"b": (("chain", "draw", "k"), values)}, coords={"k": list(labels)})

    moments = {str(k): az_swiss.moments(batch(k, "abc"), kind="inflated") for k in range(2)}
    with pytest.raises(ValueError, match=r"by b\[a\], b\[b\], b\[c\]: labels, transforms="):
        az_swiss.plan(moments).apply(batch(0, "cab"))


def test_draws_without_their_statistics(to_container):
    def batch(seed, names=("diverging", "depth")):
        stats = {name: np.zeros((2, 100)) for name in names}
        return to_container(draws(seed), **({"sample_stats": stats} if names else {}))

    plan = az_swiss.plan(
        [az_swiss.moments(batch(k), label=f"b{k}", kind="inflated") for k in (0, 1)]
    )
    with pytest.raises(ValueError, match=r'"b1"\): its draws come without diverging, depth of'):
        plan.apply(batch(1, ()))
    with pytest.raises(ValueError, match=r"come without depth of sample_stats"):
        plan.apply(batch(1, ("diverging",)))
    assert plan.apply(batch(1))["sample_stats"]["depth"].shape == (2, 100)


def test_variables_of_the_batch_alone_are_known_again():
    def batch(seed):
        rng = np.random.default_rng(seed)
        mu = rng.normal(size=(2, 100))
        own = mu[..., None] + rng.normal(size=(2, 100, 3))
        data = {"mu": (("chain", "draw"), mu), "u": (("chain", "draw", "group"), own)}
        coords = {"group": [f"g{seed}{k}" for k in range(3)]}
        return xr.Dataset(data, coords=coords, attrs={"swiss_local": "u"})

    plan = az_swiss.plan(
        {f"b{k}": az_swiss.moments(batch(k), kind="fractionated") for k in range(2)}
    )
    assert "u" in plan.apply(batch(0))["posterior"]
    with pytest.raises(ValueError, match=r"variable u: missing, but it was there when its moments"):
        plan.apply(batch(0)[["mu"]])
    with pytest.raises(ValueError, match=r"variable u: other draws than when its moments were"):
        plan.apply(batch(0).assign(u=batch(0)["u"] * 2))
