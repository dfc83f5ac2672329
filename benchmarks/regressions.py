"""Linear regressions with reference draws, as posteriordb has them, for ``refine.py reference``.

The folder has one file ``<name>.npz`` a posterior, with arrays ``data_<variable>`` and
``draws_<parameter>`` (chain, draw, ...). The package neither ships nor needs it.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Tails(NamedTuple):
    """Student's t density, of a coefficient or, from zero on, of sigma."""

    freedom: float
    centre: float
    scale: float

    def log(self, x):
        """Return the log density, without its constant."""
        return -(self.freedom + 1) / 2 * np.log1p(self._square(x) / self.freedom)

    def slope(self, x):
        """Return its derivative."""
        pull = (x - self.centre) / self.scale**2
        return -(self.freedom + 1) * pull / (self.freedom + self._square(x))

    def _square(self, x):
        return ((x - self.centre) / self.scale) ** 2


class Regression:
    """Normal outcomes, with parameters (coefficients, log sigma) and any of three priors.

    Parameters
    ----------
    intercept : Tails, optional
        Prior of the first coefficient; flat when absent.
    sd : float
        Of the normal prior of the other coefficients.
    sigma : Tails, optional
        Prior of sigma; flat when absent.
    """

    def __init__(self, design, outcomes, intercept=None, sd=np.inf, sigma=None):
        self.count, self.gram = len(outcomes), design.T @ design
        self.best = np.linalg.lstsq(design, outcomes, rcond=None)[0]
        self.rest = np.sum((outcomes - design @ self.best) ** 2)
        self.intercept, self.sd, self.sigma = intercept, sd, sigma

    def start(self):
        """Return a point near the mode."""
        return np.append(self.best, np.log(self.rest / self.count) / 2)

    def log_prior(self, x):
        value = x[:, -1] - 0.5 * np.sum((x[:, 1:-1] / self.sd) ** 2, axis=1)
        if self.intercept:
            value = value + self.intercept.log(x[:, 0])
        return value + self.sigma.log(np.exp(x[:, -1])) if self.sigma else value

    def grad_log_prior(self, x):
        gradient = np.zeros_like(x)
        gradient[:, 1:-1] = -x[:, 1:-1] / self.sd**2
        gradient[:, -1] = 1.0
        if self.intercept:
            gradient[:, 0] = self.intercept.slope(x[:, 0])
        if self.sigma:
            sigma = np.exp(x[:, -1])
            gradient[:, -1] += sigma * self.sigma.slope(sigma)
        return gradient

    def log_likelihood(self, x):
        return -self.count * x[:, -1] - 0.5 * self._squares(x) * np.exp(-2 * x[:, -1])

    def grad_log_likelihood(self, x):
        precision = np.exp(-2 * x[:, -1:])
        return np.column_stack(
            [
                -(x[:, :-1] - self.best) @ self.gram * precision,
                -self.count + self._squares(x) * precision[:, 0],
            ]
        )

    def _squares(self, x):
        off = x[:, :-1] - self.best
        return self.rest + np.einsum("ij,jk,ik->i", off, self.gram, off)


def diamonds(data):
    """Return design, outcomes and priors."""
    centred = data["X"][:, 1:] - data["X"][:, 1:].mean(axis=0)
    priors = {"intercept": Tails(3, 8, 10), "sd": 1.0, "sigma": Tails(3, 0, 10)}
    return np.column_stack([np.ones(len(centred)), centred]), data["Y"], priors


def nes(data):
    """Return design, outcomes and priors."""
    ages = [data["age_discrete"] == age for age in (2, 3, 4)]
    others = [data[name] for name in ("educ1", "gender", "income")]
    columns = [data["real_ideo"], data["race_adj"], *ages, *others]
    return np.column_stack([np.ones(len(ages[0])), *columns]), data["partyid7"], {}


def kidiq(data):
    """Return design, outcomes and priors."""
    school, iq = data["mom_hs"], data["mom_iq"]
    design = np.column_stack([np.ones(len(iq)), school, iq, school * iq])
    return design, data["kid_score"], {"sigma": Tails(1, 0, 2.5)}


# Name of the file, its model, and the number of batches.
REGRESSIONS = (
    ("diamonds-diamonds", diamonds, 10),
    ("nes1972-nes", nes, 6),
    ("nes1992-nes", nes, 6),
    ("kidiq-kidscore_interaction", kidiq, 4),
)


def load(folder, name, model):
    """Return design, outcomes, priors, and the reference draws of `beta` and `sigma`."""
    with np.load(Path(folder) / f"{name}.npz") as file:
        data = {key[5:]: file[key] for key in file.files if key.startswith("data_")}
        draws = {key[6:]: file[key] for key in file.files if key.startswith("draws_")}
    beta = draws.get("beta")
    if beta is None:
        beta = np.concatenate([draws["Intercept"][..., None], draws["b"]], axis=-1)
    design, outcomes, priors = model(data)
    reference = {"beta": beta, "sigma": draws["sigma"]}
    return design.astype(float), outcomes.astype(float), priors, reference
