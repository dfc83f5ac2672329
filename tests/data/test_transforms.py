import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, transforms

SEEDS = st.integers(0, 2**32 - 1)


def simplex(rng, size):
    return rng.dirichlet(np.ones(size), size=(2, 5))


def cholesky(rng, size):
    factor = np.tril(rng.standard_normal((2, 5, size, size)))
    return np.where(np.eye(size, dtype=bool), np.exp(factor), factor)


def correlation(rng, size):
    factor = cholesky(rng, size)
    return factor / np.linalg.norm(factor, axis=-1, keepdims=True)


SUPPORTS = {
    "log": lambda rng, size: np.exp(3 * rng.standard_normal((2, 5, size))),
    "softplus": lambda rng, size: np.exp(3 * rng.standard_normal((2, 5, size))),
    "logit": lambda rng, size: rng.uniform(size=(2, 5, size)),
    "simplex": lambda rng, size: simplex(rng, size + 1),
    "ordered": lambda rng, size: np.sort(rng.standard_normal((2, 5, size)), axis=-1),
    "cholesky": cholesky,
    "cholesky_corr": lambda rng, size: correlation(rng, size + 1),
}


def test_all_named_transforms_are_tested():
    assert set(SUPPORTS) == set(transforms.NAMED)


@pytest.mark.parametrize("name", SUPPORTS)
@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, size=st.integers(1, 5))
def test_backward_undoes_forward(name, seed, size):
    values = SUPPORTS[name](np.random.default_rng(seed), size)
    transform = transforms.resolve(name, "x")
    free = transform.forward(values)
    assert np.isfinite(free).all()
    np.testing.assert_allclose(transform.backward(free), values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SUPPORTS)
def test_any_real_vector_goes_back_into_the_support(name):
    rng = np.random.default_rng(0)
    transform = transforms.resolve(name, "x")
    shape = transform.forward(SUPPORTS[name](rng, 3)).shape
    free = 2 * rng.standard_normal(shape)
    np.testing.assert_allclose(transform.forward(transform.backward(free)), free, rtol=1e-8)


def test_softplus_keeps_its_digits():
    softplus = transforms.resolve("softplus", "x")
    values = np.array([1e-300, 1e-20, 1e-9, 0.5, 40.0, 1e5])
    images = softplus.forward(values)
    np.testing.assert_allclose(images[:3], np.log(values[:3]), rtol=1e-9)
    np.testing.assert_allclose(images[4:], values[4:], rtol=1e-12)
    np.testing.assert_allclose(softplus.backward(images), values, rtol=1e-12)
    with np.errstate(all="ignore"):
        assert not np.isfinite(softplus.forward(np.array([0.0, -1.0]))).any()


def test_interval():
    transform = transforms.resolve(("interval", -2, 5), "x")
    values = np.array([[-1.999, 0.0, 4.9]])
    np.testing.assert_allclose(transform.backward(transform.forward(values)), values)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("log", np.array([[1.0, -1.0]])),
        ("logit", np.array([[0.5, 1.0]])),
        ("simplex", np.array([[[0.5, 0.6]]])),
        ("ordered", np.array([[[1.0, 0.5]]])),
        ("cholesky", np.array([[[[1.0, 0.5], [0.0, 1.0]]]])),
        ("cholesky_corr", np.array([[[[1.0, 0.0], [0.5, 1.0]]]])),
        ("cholesky_corr", np.array([[[[0.6, 0.8], [0.6, 0.8]]]])),
        ("cholesky_corr", np.array([[[[1.0, 0.0], [0.6, -0.8]]]])),
        ("simplex", np.array([[[1.5, -0.5]]])),
        ("ordered", np.array([[[1.0, 1.0]]])),
    ],
)
def test_outside_the_support_is_not_finite(name, outside):
    assert not np.isfinite(transforms.resolve(name, "x").forward(outside)).all()


@pytest.mark.parametrize("choice", ["sqrt", ("interval", 1), 3, ("simplex",)])
def test_unknown_transform_lists_the_valid_ones(choice):
    with pytest.raises(ValueError, match=r'variable tau: unknown transform.*"log".*"simplex"'):
        transforms.resolve(choice, "tau")


@pytest.mark.parametrize("bounds", [(1, 0), (0, np.inf), (2, 2)])
def test_interval_needs_finite_ordered_bounds(bounds):
    with pytest.raises(ValueError, match="finite low < high"):
        transforms.resolve(("interval", *bounds), "x")


@pytest.mark.parametrize(("name", "shape"), [("simplex", (1,)), ("cholesky_corr", (1, 1))])
def test_a_support_of_one_point_has_nothing_to_transform(name, shape):
    rng = np.random.default_rng(0)
    batches = [{"x": np.ones((2, 50, *shape)), "y": rng.normal(size=(2, 50))} for _ in range(2)]
    message = rf'batch 0 \("b0"\), variable x: a "{name}" of size 1 can only be 1'
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, kind="inflated", transforms={"x": name})
    # the advice: as it is, or left out
    merged = az_swiss.merge(batches, kind="inflated", transforms={"x": None})
    assert (containers.read(merged).groups["posterior"]["x"] == 1).all()
    merged = az_swiss.merge(batches, kind="inflated", var_names="~x")
    assert list(containers.read(merged).groups["posterior"]) == ["y"]


@pytest.mark.parametrize(("name", "shape"), [("ordered", (1,)), ("cholesky", (1, 1))])
def test_one_element_that_can_vary(name, shape):
    values = np.random.default_rng(0).gamma(3, size=(2, 5, *shape))
    transform = transforms.resolve(name, "x")
    free = transform.forward(values)
    assert free.shape == (2, 5, 1)
    np.testing.assert_allclose(transform.backward(free), values)


@pytest.mark.parametrize("name", ["simplex", "ordered"])
def test_vectors_are_not_made_of_draws(name):
    draws = np.sort(np.random.default_rng(0).uniform(size=(2, 50)))
    with pytest.raises(ValueError, match=f'variable x: "{name}" takes vectors'):
        az_swiss.merge([{"x": draws}] * 2, kind="inflated", transforms={"x": name})


def test_cholesky_takes_square_matrices():
    with pytest.raises(ValueError, match=r"square matrices.*\(3,\)"):
        transforms.resolve("cholesky", "x").forward(np.ones((2, 5, 3)))


class Cube:
    def forward(self, values):
        return np.cbrt(values)

    def backward(self, values):
        return values**3


class Halved(Cube):
    """Forgets the sign on the way back."""

    def backward(self, values):
        return np.abs(values) ** 3


class Summed(Cube):
    """Loses the dimension of draws."""

    def forward(self, values):
        return values.sum(axis=1)


class Longer(Cube):
    """Gives back more elements than there were."""

    def backward(self, values):
        return np.repeat(values, 2, axis=-1)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (Halved(), "variable x: backward of the transform does not undo its forward"),
        (Summed(), r"variable x: forward of the transform gave shape \(2, 3\).*chain and draw"),
        (Longer(), r"variable x: backward of the transform gave shape \(6,\).*has \(3,\)"),
    ],
)
def test_own_transforms_must_undo_themselves(transform, message):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.standard_normal((2, 200, 3)) - 2} for _ in range(2)]
    with pytest.raises(ValueError, match=message):
        az_swiss.merge(batches, kind="inflated", transforms={"x": transform})
    with pytest.warns(az_swiss.MergeWarning, match="strongly skewed"):
        az_swiss.merge(batches, kind="inflated", transforms={"x": Cube()})


def test_text_restores_all_but_own_objects():
    chosen = {"a": "log", "b": ("interval", 0, 2), "c": None, "d": "simplex"}
    resolved = {name: transforms.resolve(choice, name) for name, choice in chosen.items()}
    restored = transforms.restore(transforms.describe(resolved))
    assert {name: transform.choice for name, transform in restored.items()} == chosen
    text = transforms.describe({"x": Cube()})
    with pytest.raises(ValueError, match="variable x was merged with your own transform Cube"):
        transforms.restore(text)
    assert isinstance(transforms.restore(text, {"x": Cube()})["x"], Cube)
