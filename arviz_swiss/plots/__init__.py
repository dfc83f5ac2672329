"""Pictures of a merge, with matplotlib; importing this does not import it."""

from arviz_swiss.plots.plot_batches import plot_batches
from arviz_swiss.plots.plot_compare_methods import plot_discrepancy
from arviz_swiss.plots.plot_maps import plot_maps
from arviz_swiss.plots.plot_shift import plot_shift

__all__ = ["plot_batches", "plot_discrepancy", "plot_maps", "plot_shift"]
