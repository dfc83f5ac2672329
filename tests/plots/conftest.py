import pytest
from drawn_batches import make_merged
from matplotlib import pyplot
from read_visuals import BACKENDS


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(scope="session")
def merged():
    return make_merged(4)
