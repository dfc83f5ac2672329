"""Sampling in one thread: by nutpie, or quickly and without a compiler where draws matter less."""

from concurrent.futures import ThreadPoolExecutor

import pytensor
import pytest
from batch_models import DATA

from arviz_swiss.pymc import sample_batches

NUTPIE = {"nuts_sampler": "nutpie", "draws": 60, "tune": 100, "progressbar": False}
QUICK = {"nuts_sampler": "pymc", "draws": 20, "tune": 20, "chains": 1, "progressbar": False}


@pytest.fixture
def uncompiled():
    """Spare the compilers, C's and Numba's: small models are faster in Python than compiled."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


@pytest.fixture(scope="session")
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(scope="session")
def run(threads):
    """Return sample_batches by nutpie in one thread, where batches follow each other."""

    def run(build, data=DATA, **settings):
        return sample_batches(build, data, **{"executor": threads, **NUTPIE, **settings})

    return run


@pytest.fixture
def quick(threads, uncompiled):
    """Return sample_batches with few draws of PyMC's own sampler, without a compiler."""

    def quick(build, data=DATA, **settings):
        return sample_batches(build, data, **{"executor": threads, **QUICK, **settings})

    return quick
