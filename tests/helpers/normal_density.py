"""The simplest density: a normal likelihood of unit information around a centre, a flat prior."""

import numpy as np


class Normal:
    """The density of a batch whose data say `centre`; the parameters are independent."""

    def __init__(self, centre):
        self.centre = np.atleast_1d(centre)

    def log_prior(self, x):
        return np.zeros(len(x))

    def grad_log_prior(self, x):
        return np.zeros_like(x)

    def log_likelihood(self, x):
        return -0.5 * np.sum((x - self.centre) ** 2, axis=1)

    def grad_log_likelihood(self, x):
        return self.centre - x

    def draw(self, rng, power=1.0, shape=(2, 400)):
        return rng.normal(self.centre, power**-0.5, size=(*shape, self.centre.size))
