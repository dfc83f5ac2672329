"""The README's first command: divide a logistic regression, merge it, compare with a full run.

Run ``python -m arviz_swiss.demo [folder]``. It samples 8 batches of 20,000 simulated rows, and the
full data for comparison; prints a table; saves the merged posterior and a picture in the folder.
"""

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

ROWS, BATCHES = 20_000, 8
TRUTH = np.array([-1.0, 0.8, -0.5, 0.3, 0.0])
TERMS = ["intercept", "age", "dose", "weight", "noise"]


def main(folder: str = "demo-output") -> None:
    """Sample, merge, compare and save."""
    # Imported here, so that `import arviz_swiss.demo` stays as light as the package.
    import pymc as pm

    import arviz_swiss as az_swiss

    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    data = simulate()

    print(f"sampling {BATCHES} inflated batches of {ROWS // BATCHES} rows ...")
    start = time.perf_counter()
    idatas = az_swiss.sample_batches(build, data, batches=BATCHES, random_seed=1)
    merged = az_swiss.merge(idatas)
    divided = time.perf_counter() - start

    print(f"sampling all {ROWS} rows for comparison ...")
    start = time.perf_counter()
    with build(data):
        full = pm.sample(chains=2, cores=2, random_seed=1, progressbar=False)
    whole = time.perf_counter() - start

    print()
    print(compare(merged, full).round(3).to_string())
    batch = max(float(idata["posterior"].attrs["sampling_time"]) for idata in idatas)
    every = float(full["posterior"].attrs["sampling_time"])
    print(f"\ndivided and merged in {divided:.0f} s, full data in {whole:.0f} s")
    print(f"(of that, sampling took up to {batch:.0f} s a batch, and {every:.0f} s for all rows)")
    merged.to_netcdf(target / "merged.nc")
    save_picture(merged, full, target / "merged.png")
    print(f"saved {target / 'merged.nc'} and {target / 'merged.png'}")


def simulate(random_seed: int = 0) -> pd.DataFrame:
    """Return simulated rows: four standardised features and a yes-or-no response."""
    rng = np.random.default_rng(random_seed)
    data = pd.DataFrame(rng.standard_normal((ROWS, 4)), columns=TERMS[1:])
    logits = TRUTH[0] + data.to_numpy() @ TRUTH[1:]
    data["response"] = rng.random(ROWS) < 1 / (1 + np.exp(-logits))
    return data


def build(data: pd.DataFrame):
    """Return the model of some rows: an ordinary PyMC model, that knows nothing of batches."""
    import pymc as pm

    with pm.Model(coords={"term": TERMS}) as model:
        # Data in pm.Data let nutpie compile the model once for all batches.
        features = pm.Data("features", np.column_stack([np.ones(len(data)), data[TERMS[1:]]]))
        response = pm.Data("response_data", data["response"].to_numpy(dtype=int))
        beta = pm.Normal("beta", 0, 2, dims="term")
        pm.Bernoulli("response", logit_p=features @ beta, observed=response)
    return model


def compare(merged, full) -> pd.DataFrame:
    """Return means and sds, merged and full, and how far they differ."""
    ours, theirs = merged["posterior"]["beta"], full["posterior"]["beta"]
    sample = ["chain", "draw"]
    table = pd.DataFrame(
        {
            "truth": TRUTH,
            "merged mean": ours.mean(sample),
            "full mean": theirs.mean(sample),
            "merged sd": ours.std(sample),
            "full sd": theirs.std(sample),
        },
        index=TERMS,
    )
    table["shift in sds"] = (table["merged mean"] - table["full mean"]) / table["full sd"]
    table["sd ratio"] = table["merged sd"] / table["full sd"]
    return table


def save_picture(merged, full, path: Path) -> None:
    """Draw the batches before the merge, the merged posterior and the full-data one."""
    import arviz_swiss as az_swiss

    axes = az_swiss.plot_batches(merged, reference=full)
    np.ravel(axes)[0].figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(*sys.argv[1:])
