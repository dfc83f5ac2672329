"""The one class of warnings that this package gives."""


class MergeWarning(UserWarning):
    """Something about the batches that changes how far the merged posterior can be trusted."""
