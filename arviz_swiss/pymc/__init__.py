"""Everything that needs PyMC: tempered models, and a model's unconstrained space."""

from arviz_swiss.parallel.batch_error import BatchError
from arviz_swiss.pymc.fractionate import fractionate
from arviz_swiss.pymc.inflate import inflate
from arviz_swiss.pymc.predict import predict
from arviz_swiss.pymc.sample import sample
from arviz_swiss.pymc.sample_batches import sample_batches
from arviz_swiss.pymc.space import ModelSpace
from arviz_swiss.pymc.tempering import tempering_attrs

__all__ = [
    "BatchError",
    "ModelSpace",
    "fractionate",
    "inflate",
    "predict",
    "sample",
    "sample_batches",
    "tempering_attrs",
]
