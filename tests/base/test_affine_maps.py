import numpy as np

from arviz_swiss.base.linalg import AffineMap, embed


def test_parameters_are_embedded_where_they_lie():
    rng = np.random.default_rng(0)
    affine = AffineMap(rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3))
    draw = rng.normal(size=3)
    expected = affine.scale @ (draw - affine.source) + affine.target
    for free in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        whole = embed(affine, np.array(free), np.zeros(3))
        x = np.empty(3)
        x[free] = draw
        moved = whole.scale @ (x - whole.source) + whole.target
        np.testing.assert_allclose(moved[free], expected, rtol=1e-13)
