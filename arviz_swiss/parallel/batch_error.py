"""What is raised when some batches could not be sampled, with those that could."""

from pathlib import Path
from typing import Any


class BatchError(RuntimeError):
    """Some batches could not be sampled or saved; the others are kept.

    Parameters
    ----------
    failed : dict of str to Exception
        The cause, by the label of the batch.
    idatas : dict of str to InferenceData or DataTree
        The batches that were sampled, by label.
    folder : Path, optional
        Where the sampled batches were saved.
    hints : dict of str to str, optional
        What is wrong with the rows of a batch, by its label.

    Examples
    --------
    >>> import arviz_swiss as az_swiss
    >>> error = az_swiss.BatchError({"b3": ValueError("no start")}, {"b0": ..., "b1": ...})
    >>> print(error)
    1 of 3 batches failed: b3 (ValueError: no start). The 2 that were sampled are in ...
    """

    def __init__(
        self,
        failed: dict[str, BaseException],
        idatas: dict[str, Any],
        folder: Path | None = None,
        hints: dict[str, str] | None = None,
    ):
        self.failed = failed
        self.idatas = idatas
        self.folder = folder
        self.hints = hints or {}
        causes = "; ".join(f"{label} ({self._cause_of(label)})" for label in failed)
        advice = (
            "Mend the cause and pass folder= to keep finished batches, so that a rerun samples "
            "only what is missing."
            if folder is None
            else f"Mend the cause and run the same call again: it takes finished batches from "
            f"{folder} and samples only what is missing. If the models of other batches change, "
            "pass another folder."
        )
        super().__init__(
            f"{len(failed)} of {len({*failed, *idatas})} batches failed: {causes}. The "
            f"{len(idatas)} that were sampled are in the `idatas` of this exception. {advice}"
        )

    def _cause_of(self, label: str) -> str:
        return "; ".join(filter(None, [_one_line(self.failed[label]), self.hints.get(label)]))

    def __reduce__(self):
        """Pickle with all that it carries."""
        return BatchError, (self.failed, self.idatas, self.folder, self.hints)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
