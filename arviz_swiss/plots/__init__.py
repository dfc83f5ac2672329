"""Pictures of a merge, with matplotlib; importing this does not import it."""

from arviz_swiss.plots.batches import plot_batches
from arviz_swiss.plots.discrepancy import plot_discrepancy
from arviz_swiss.plots.maps import plot_maps
from arviz_swiss.plots.shift import plot_shift

__all__ = ["plot_batches", "plot_discrepancy", "plot_maps", "plot_shift"]
