import pytest
from drawn_batches import make_merged
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def merged():
    return make_merged(4)
