"""Models of Bambi, which writes a PyMC model from a formula."""

import sys
from typing import Any


def from_bambi(model: Any, where: str) -> Any:
    """Return the PyMC model of a Bambi model; anything else as it is.

    A model that centres its predictors is refused: Bambi subtracts the mean of the rows that it was
    given, and undoes that only in its own ``fit``, so that the intercepts of two batches are those
    of different points.
    """
    bambi = sys.modules.get("bambi")
    if bambi is None or not isinstance(model, bambi.Model):
        return model
    if _centres(model):
        raise ValueError(
            f"{where}: the Bambi model centres its predictors at the means of the batch, so that "
            "its intercept is another parameter in every batch. Pass center_predictors=False to "
            "bambi.Model."
        )
    if not model.built:
        model.build()
    return model.backend.model


def _centres(model: Any) -> bool:
    # Bambi renames components to parameters
    predictors = model.parameters if hasattr(model, "parameters") else model.components
    return bool(model.center_predictors) and any(
        getattr(part, "intercept_term", None) is not None and getattr(part, "common_terms", None)
        for part in predictors.values()
    )
