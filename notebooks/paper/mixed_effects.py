"""Linear mixed effects with logistic noise: section 4.3 of the paper, Table 1.

Row i of group j is Logistic(x_ij' beta + z_j' alpha_j, 1), alpha_j ~ N(0, Sigma), Sigma inverse
Wishart(5, 5 I), beta ~ N(0, 1000 I). Only u_j = z_j' alpha_j ~ N(0, z_j' Sigma z_j) touches the
data, so u_j is sampled in place of the two effects of a group: beta and Sigma have the same
posterior.

Sub-posteriors of three sorts:

- fractionated: whole groups in a batch, the prior of beta and Sigma to the power 1/B;
- inflated: the marginal likelihood of each group to the power B, by B copies of the group with
  latent variables of their own. Exact, but each batch is then as large as all the data;
- total_size: what PyMC's total_size=N does, the likelihood given the latent variables to the power
  B. Wrong: the number of groups, which is what Sigma is known from, stays that of the batch.
"""

import hashlib
import inspect
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import methods
import numpy as np
import pandas as pd
import results
import xarray as xr

import arviz_swiss as az_swiss
from arviz_swiss.parallel.partition import partition as split
from arviz_swiss.parallel.partition import take

TITLE = "Linear mixed effects"
SIGMA = np.array([[1.0, 0.2], [0.2, 1.0]])
SHARED = ["beta", "Sigma"]
SAMPLED = ["beta", "square1", "square2", "below"]
ELEMENTS = ["11", "12", "22"]
SORTS = ("fractionated", "inflated", "total_size")
REFINED, REFINED_DRAWS = "refined", 10_000
# A bandwidth ten times the default in 13 dimensions.
WIDE = 20.0
# Where the variables that are sampled are merged: in unconstrained space.
TRANSFORMS = {"square1": "log", "square2": "log"}

PAPER = {
    "swiss": ("0.69 (0.14)", "0.02 (<0.01)", "0.06 (0.01)"),
    "consensus": ("0.39 (0.13)", "0.03 (0.01)", "0.04 (0.01)"),
    "recentre": ("2.20 (0.31)", "0.02 (<0.01)", "0.13 (0.01)"),
    "semiparametric": ("0.39 (0.08)", "0.04 (<0.01)", "0.04 (0.01)"),
    "barycenter": ("2.19 (0.31)", "0.05 (0.01)", "0.13 (0.01)"),
}


class Setting(NamedTuple):
    """How much is run. Replicated latents are as dear as all the data in every batch."""

    groups: int = 2000
    group_size: int = 100
    fixed: int = 10
    batches: int = 10
    partitions: int = 5
    draws: int = 1000
    tune: int = 400
    chains: int = 2
    sorts: tuple[str, ...] = ("fractionated",)


FULL = Setting()
# Small enough for the other two sorts.
SMALL = Setting(
    groups=200,
    group_size=20,
    fixed=4,
    batches=4,
    partitions=2,
    draws=1000,
    tune=700,
    chains=2,
    sorts=SORTS,
)
QUICK = Setting(
    groups=60,
    group_size=10,
    fixed=3,
    batches=2,
    partitions=1,
    draws=500,
    tune=500,
    chains=2,
    sorts=SORTS,
)


def simulate(setting: Setting, random_seed: int = 2023) -> pd.DataFrame:
    """Return the data: group, the features x0 (ones), x1, ..., the group's z1 and z2, and y."""
    rng = np.random.default_rng(random_seed)
    rows = setting.groups * setting.group_size
    group = np.repeat(np.arange(setting.groups), setting.group_size)
    features = (rng.random((rows, setting.fixed)) < 0.5).astype(float)
    features[:, 0] = 1.0
    choice = (rng.random((setting.groups, 2)) < 0.5).astype(float)
    effects = rng.multivariate_normal(np.zeros(2), SIGMA, size=setting.groups)
    beta = (-1.0) ** np.arange(setting.fixed)
    centre = features @ beta + np.sum(choice * effects, axis=1)[group]
    columns = {"group": group}
    columns |= {f"x{k}": features[:, k] for k in range(setting.fixed)}
    columns |= {"z1": choice[group, 0], "z2": choice[group, 1]}
    return pd.DataFrame(columns | {"y": centre + rng.logistic(size=rows)})


def replicate(data: pd.DataFrame, copies: int) -> pd.DataFrame:
    """Return the data so many times, each copy with groups of its own."""
    # The same step in every batch, so that no two batches share a group.
    parts = [data.assign(group=data["group"] + copy * 1_000_000) for copy in range(copies)]
    return pd.concat(parts, ignore_index=True)


def elements(square1: Any, square2: Any, below: Any) -> tuple[Any, Any, Any]:
    """Return Sigma's three elements, 5 (T^-1)' T^-1 written out; numbers, arrays or tensors."""
    return (
        5.0 / square1 * (1 + below**2 / square2),
        -5.0 * below / (square1**0.5 * square2),
        5.0 / square2,
    )


def build(data: pd.DataFrame, power: float = 1.0) -> Any:
    """Return the PyMC model of these rows; `power` is that of the likelihood given the latents.

    The inverse Wishart prior is written by Bartlett's decomposition: the inverse of Sigma is
    T T' / 5, the squared diagonal of the lower triangular T chi-square with 5 and 4 degrees of
    freedom, the element below it standard normal.
    """
    import pymc as pm
    import pytensor.tensor as pt

    features = [name for name in data.columns if name.startswith("x")]
    touched = data[(data["z1"] > 0) | (data["z2"] > 0)]
    table = touched.groupby("group")[["z1", "z2"]].first()
    # Rows of groups without a random effect point past the end of u, at a zero.
    place = pd.Series(np.arange(len(table)), index=table.index)
    place = data["group"].map(place).fillna(len(table)).astype(int)
    coords = {"feature": features, "element": ELEMENTS, "group": table.index.to_numpy()}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", data[features].to_numpy())
        z1, z2 = (pm.Data(name, table[name].to_numpy()) for name in ("z1", "z2"))
        where = pm.Data("place", place.to_numpy())
        beta = pm.Normal("beta", 0.0, np.sqrt(1000.0), dims="feature")
        square1 = pm.ChiSquared("square1", 5)
        square2 = pm.ChiSquared("square2", 4)
        below = pm.Normal("below")
        sigma11, sigma12, sigma22 = elements(square1, square2, below)
        spread = pt.sqrt(z1 * sigma11 + z2 * sigma22 + 2 * z1 * z2 * sigma12)
        u = pm.Normal("u", 0.0, spread, dims="group")
        centre = x @ beta + pt.concatenate([u, [0.0]])[where]
        observed = pm.Data("y_data", data["y"].to_numpy())
        total = {} if power == 1.0 else {"total_size": power * len(data)}
        pm.Logistic("y", centre, 1.0, observed=observed, **total)
    return model


def sample(data: pd.DataFrame, setting: Setting, sort: str, partition: int) -> list[dict]:
    """Return the draws of the shared variables, one dict a batch; "full" is all data in one.

    The last two sorts bring their own power: each of their batches is sampled as if it were all.
    """
    if sort == "full":
        folder = _folder(setting, sort, partition)
        return _shared_of(_sample(build, data, 1, setting, partition, folder))
    if sort == "fractionated":
        return _shared_of(sample_fractionated(data, setting, partition))
    folder = _folder(setting, sort, partition)
    index = split(data, setting.batches, groups="group", random_seed=partition)
    parts = {folder / f"batch-{b}": take(data, rows) for b, rows in enumerate(index)}
    if sort == "total_size":
        return [_sample_wrongly(part, setting, partition, path) for path, part in parts.items()]
    sampled = [
        _sample(
            lambda batch: build(replicate(batch, setting.batches)),
            part,
            1,
            setting,
            partition,
            path,
        )
        for path, part in parts.items()
    ]
    return [shared for one in sampled for shared in _shared_of(one)]


def sample_fractionated(data: pd.DataFrame, setting: Setting, partition: int) -> list[Any]:
    """Return the sampled batches of whole groups, the effects of their groups included."""
    folder = _folder(setting, "fractionated", partition)
    return _sample(build, data, setting.batches, setting, partition, folder)


def _folder(setting: Setting, sort: str, partition: int) -> Path:
    return results.draws_folder("mixed_effects", setting, f"{sort}-{partition}")


def _sample(build_batch, data, batches, setting, random_seed, folder) -> list[Any]:
    from arviz_swiss.pymc import sample_batches

    # nutpie's chains run beside one another in threads too, which need not import PyMC anew.
    with ThreadPoolExecutor(2) as executor:
        return sample_batches(
            build_batch,
            data,
            batches=batches,
            groups="group",
            kind="fractionated",
            executor=executor,
            folder=folder,
            draws=setting.draws,
            tune=setting.tune,
            chains=setting.chains,
            nuts_sampler="nutpie",
            random_seed=random_seed,
            progressbar=False,
        )


def _shared_of(idatas: list[Any]) -> list[dict]:
    return [_shared(idata) for idata in idatas]


def _sample_wrongly(data: pd.DataFrame, setting: Setting, random_seed: int, path: Path) -> dict:
    """Sample with total_size, by PyMC itself: `sample_batches` refuses.

    What is kept is named after data and model, and written in full or not at all.
    """
    import pymc as pm

    made_from = hashlib.sha256(data.to_csv().encode() + inspect.getsource(build).encode())
    path = path.with_name(f"{path.name}-{made_from.hexdigest()[:10]}.npz")
    if not path.exists():
        with build(data, power=setting.batches):
            idata = pm.sample(
                setting.draws,
                tune=setting.tune,
                chains=setting.chains,
                nuts_sampler="nutpie",
                random_seed=random_seed,
                progressbar=False,
                compute_convergence_checks=False,
            )
        unfinished = path.with_name(f"{os.getpid()}-{path.name}")
        np.savez(unfinished, **_shared(idata))
        unfinished.replace(path)
    with np.load(path) as kept:
        return dict(kept)


def _shared(idata: Any) -> dict[str, np.ndarray]:
    return {name: idata["posterior"][name].values for name in SAMPLED}


def with_sigma(draws: Any) -> dict[str, np.ndarray]:
    """Return beta and Sigma of draws (chain, draw, ...) of the shared variables."""
    arrays = {name: np.asarray(draws[name]) for name in SAMPLED}
    sigma = elements(arrays["square1"], arrays["square2"], arrays["below"])
    return {"beta": arrays["beta"], "Sigma": np.stack(sigma, axis=-1)}


def run(setting: Setting, progressbar: bool = True) -> pd.DataFrame:
    """Sample and merge; a row a partition, sort of sub-posterior and method.

    Beside the measures a row has the sds' ratios to the reference's, of Sigma and of beta.
    """
    data = simulate(setting)

    def one(partition: int, sort: str) -> list[dict]:
        reference = with_sigma(sample(data, setting, "full", 0)[0])
        batches = sample(data, setting, sort, partition)
        kind = "fractionated" if sort == "fractionated" else "inflated"
        rows = []
        for method in methods.PAPER_NAMES:
            merged = methods.merge(
                batches, method=method, kind=kind, transforms=TRANSFORMS, random_seed=partition
            )
            merged = with_sigma(merged["posterior"])
            ratios = {
                f"sd_{name}": np.mean(_sd(merged[name]) / _sd(reference[name])) for name in SHARED
            }
            rows.append({"method": method, **methods.score(merged, reference), **ratios})
        if sort == "fractionated":
            rows.append(refine(data, setting, partition, reference))
        return rows

    units = [
        {"partition": partition, "sort": sort}
        for partition in range(setting.partitions)
        for sort in setting.sorts
    ]
    return results.collect(results.open_store("mixed_effects", setting), units, one, progressbar)


def refine(data: pd.DataFrame, setting: Setting, partition: int, reference: dict) -> dict:
    """Merge the sampled batches by SwISS, refine in rounds, certify; return the row of measures."""
    quiet = {"random_seed": partition, "progressbar": False}
    merged = methods.merge(sample_fractionated(data, setting, partition), kind="fractionated")
    with warnings.catch_warnings():
        # What the certificate says is a figure of the page.
        warnings.simplefilter("ignore", az_swiss.MergeWarning)
        source = {"build": build, "data": data}
        refined = az_swiss.refine(merged, **source, draws=REFINED_DRAWS, **quiet)
        certified = az_swiss.certify(refined, **source, **quiet)
    verdict = certified["swiss_certificate"].attrs["status"]
    draws = with_sigma(refined["posterior"])
    # refined batches have more chains than draws, so that axes need names
    named = {name: (("chain", "draw", f"{name}_dim_0"), array) for name, array in draws.items()}
    measured = methods.score(xr.Dataset(named), reference)
    return {"method": REFINED, **measured, "verdict": verdict}


def certificates(rows: pd.DataFrame) -> str:
    """Say what the certificates of the refined merges were."""
    verdicts = rows.loc[rows["method"] == REFINED, "verdict"].value_counts()
    found = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())
    return results.text(
        f"""The last row is the SwISS merge after `refine`, which samples each batch again with what
        the others say of the shared parameters as its prior, in a few short rounds. What `certify`
        says of it, in how many partitions: {found}."""
    )


def _sd(draws: np.ndarray) -> np.ndarray:
    return draws.reshape(-1, draws.shape[-1]).std(axis=0)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's Table 1, from fractionated sub-posteriors."""
    names = methods.PAPER_NAMES | {REFINED: "SwISS, refined"}
    return results.comparison(rows[rows["sort"] == "fractionated"], names, PAPER)


def wide_kernels(setting: Setting) -> str:
    """Say what the semi-parametric product gives with wide kernels, of the first partition."""
    data = simulate(setting)
    reference = with_sigma(sample(data, setting, "full", 0)[0])
    merged = methods.merge(
        sample(data, setting, "fractionated", 0),
        method="semiparametric",
        kind="fractionated",
        transforms=TRANSFORMS,
        random_seed=0,
        bandwidth=WIDE,
    )
    found = methods.score(with_sigma(merged["posterior"]), reference)
    figures = ", ".join(
        f"{heading} {results.number(found[name])}" for name, heading in results.MEASURES.items()
    )
    return results.text(
        f"""The semi-parametric product depends on the width of its kernels, which the paper does
        not state. With `bandwidth={WIDE:g}` it has {figures} in the first partition: wide kernels
        leave little but the product of the Gaussians, which has the moments of consensus."""
    )


def write(setting: Setting, is_quick: bool, progressbar: bool = True) -> None:
    """Run, and write the experiment's page."""
    rows = run(setting, progressbar)
    results.write_page(
        "mixed_effects",
        is_quick,
        title=TITLE,
        setting=f"""{setting.groups:,} groups of {setting.group_size} rows, {setting.fixed} fixed
            effects, {setting.batches} batches of whole groups, {setting.chains} chains of
            {setting.draws:,} draws by PyMC with nutpie; {results.mean_of(setting.partitions)}.
            The paper's figures are for 2,000 groups of 100
            rows, 10 fixed effects and 10 batches.""",
        parts=[
            results.markdown(table(rows)),
            methods.floor_sentence(rows),
            certificates(rows),
            wide_kernels(setting),
            results.text(
                """Measured on the fixed effects and the three elements of Sigma, merged in
                unconstrained space; the paper counts the random effects among its parameters, and
                does not say whether it measures them. (Its text speaks of ten partitions, the
                caption of its table of five.) Sub-posteriors are fractionated,
                for all methods: SwISS, re-centring and the barycenter get the draws rescaled about
                their batch mean by the square root of the number of batches. The paper does not say
                how it inflated the likelihood of a model with random effects;
                [which sub-posterior?](mixed_effects_sorts.md) shows why it matters."""
            ),
        ],
    )
