"""The PyMC model of a batch in white coordinates, for any sampler, and its draws back again."""

import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.graph.replace import graph_replace

from arviz_swiss.data.containers import SAMPLE_DIMS
from arviz_swiss.pymc.coordinates import Coordinates
from arviz_swiss.pymc.pilot import Pilot
from arviz_swiss.pymc.tempering import Powers

# The variable of a whitened model, and its data beside the user's own.
WHITE, MEAN, FACTOR, POWER, PRIOR_POWER = (
    f"swiss_{name}" for name in ("white", "mean", "factor", "power", "prior_power")
)


def whiten(model: pm.Model, pilot: Pilot, powers: Powers) -> tuple[pm.Model, Coordinates]:
    """Return a model of white coordinates with the density of a batch, for any sampler of PyMC.

    Powers, mean and factor are its data, so that one compiled model serves all batches.
    """
    coordinates = Coordinates(model)
    pilot = pilot.ordered(coordinates.parameters)
    terms = [
        pt.add(*map(pt.sum, model.logp(vars=variables, sum=False)), pt.constant(0.0))
        for variables in (model.observed_RVs, [*model.free_RVs, *model.potentials])
    ]
    with pm.Model() as white:
        theta = pm.Data(MEAN, pilot.mean) + pt.dot(
            pm.Data(FACTOR, pilot.factor), pm.Flat(WHITE, shape=pilot.mean.size)
        )
        parts = {
            model.rvs_to_values[model[variable.name]]: theta[variable.columns].reshape(
                variable.shape
            )
            for variable in coordinates.layout.variables
        }
        likelihood, prior = graph_replace(terms, parts, strict=False)
        pm.Potential(
            "swiss_density",
            pm.Data(POWER, powers.likelihood) * likelihood
            + pm.Data(PRIOR_POWER, powers.prior) * prior,
        )
    return white, coordinates


def unwhiten(posterior: xr.Dataset, pilot: Pilot, coordinates: Coordinates) -> xr.Dataset:
    """Return the draws of a whitened model as the user's variables."""
    pilot = pilot.ordered(coordinates.parameters)
    white = posterior[WHITE].transpose(*SAMPLE_DIMS, ...).values
    dataset = coordinates.to_dataset(pilot.mean + white @ pilot.factor.T)
    return coordinates.with_deterministics(dataset).assign_attrs(posterior.attrs)
