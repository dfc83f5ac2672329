"""report(): the verdict on a merge in words."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from arviz_swiss.checking import page, pictures
from arviz_swiss.checking.evidence import Evidence, Finding
from arviz_swiss.checking.findings import (
    LARGE_ERROR,
    NOTED_ERROR,
    describe_error,
    expected_error,
    find_all,
    named_batches,
    remove_error,
)
from arviz_swiss.checking.statistics import draw_statistics
from arviz_swiss.data import files, schema
from arviz_swiss.data.containers import Container
from arviz_swiss.data.messages import brief
from arviz_swiss.merging.merged import Merged, open_merged
from arviz_swiss.merging.records import CERTIFIED, NOT_CERTIFIED, describe_pilot

NO_PROOF = "A pass is no proof: what all batches get wrong alike does not show here."
# How many batches of one flag a report tells in full, and how many of the others it lists.
MOST_TOLD = 3
MOST_LISTED = 10


@dataclass(frozen=True)
class Report:
    """The verdict on a merge: print it, look at it, send it, or go through its findings.

    Printed, the verdict comes first, then the findings, then what was merged and how. The worst
    three batches of each flag are told in full, the others by name. A notebook shows the same with
    a table and pictures; `to_html` writes all of it into one file.

    Attributes
    ----------
    verdict : str
        Certified or not, or whether the batches agree or how many are in doubt.
    findings : tuple of Finding
        All that speaks against the merge, each with `flag`, `batches`, `what` and `remedy`; of
        each flag the worst batch comes first.
    statistics : Dataset
        The numbers behind them: the group `swiss_diagnostics` of the merged object, and, unless
        draws were newly made, what the batches' own draws tell. By batch and parameter of the space
        of the merge:

        - `rhat`, `ess_bulk`, `ess_tail`: rank-normalised split R-hat and effective sizes of the
          batch's own draws, before the merge (between merged batches R-hat is 1 by construction);
        - `rhat_limit`: the R-hat that any parameter of any batch exceeds by chance alone in one
          merge of a hundred, with so many effective draws, and 1.05 at least;
        - `ess_within`: effective size by autocorrelation within chains alone, bulk or spread, which
          varies less by chance than the others where draws are few;
        - `width`: its sd over the median batch's;
        - `skewness`, `kurtosis` (excess), `least` and `greatest` (of the draws), and `valley`, the
          depth of the deepest valley between two modes that rise above it with at least 5% of the
          draws each: 0 with one mode, 1 with two far apart;
        - `shape`: integrated absolute distance, from 0 to 1, between the batch's marginal and the
          other batches' pooled, all brought to the merged mean and covariance by the map of SwISS,
          whatever the method of the merge, so that only shape is left to differ; and `shape_noise`,
          what it is on average by chance. Batches that are stuck, have not converged or are
          bimodal are not among "the others", as long as they are fewer than half;

        by parameter `rhat_nested`, with ArviZ 1.x and where each batch was told what the others
        know: nested R-hat of the batches' own draws, each batch a superchain (see `summary`);

        by batch `divergences`, where the sampler recorded them; and `skewness_error`, by how many
        posterior sds (Mahalanobis) the skewness of inflated batches says the merged mean is off.
    status : str or None
        What `certify` said: "certified", "usable" or "not certified"; None if it was not asked.
    notes : tuple of str
        What was merged, how it was sampled and refined, and what is not in the merged object.
    merged : InferenceData, DataTree or path
        What the report is of, for tables and pictures: the object itself and no copy, or the path
        of its file, which is read again when it is needed.
    group : str
        The group that holds its draws.
    """

    verdict: str
    findings: tuple[Finding, ...]
    statistics: xr.Dataset = field(compare=False)
    status: str | None = None
    notes: tuple[str, ...] = ()
    merged: Container | str | None = field(default=None, compare=False)
    group: str = field(default="posterior", compare=False)

    @property
    def is_in_doubt(self) -> bool:
        """Whether something speaks against the merge, and no certificate for it."""
        return bool(self.findings) and self.status != CERTIFIED

    @property
    def headline(self) -> str:
        """The verdict in a word or two."""
        if self.status is not None:
            return self.status.capitalize()
        return "In doubt" if self.findings else "Nothing found against it"

    def __str__(self) -> str:
        findings = (f"- {finding}" for finding in _shortened(self.findings))
        return "\n".join([self.verdict, *findings, *self.notes])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        findings = list(_shortened(self.findings))
        try:
            merged = self._open()
        except (OSError, ValueError) as error:
            # what was found is still true of the file that was
            return page.write_fragment(self.verdict, findings, [*self.notes, str(error)])
        shown = pictures.draw_pictures(self, merged, key_only=True)
        return page.write_fragment(self.verdict, findings, self.notes, merged, shown)

    def to_html(self, path: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the report into one HTML file, which needs no other: one to send, or to print.

        It has the verdict, all findings with their remedies, what was merged and from what, the
        pictures, the time of each stage where `sample` recorded it, settings and versions. Pictures
        are in the file itself; without arviz-plots and Matplotlib (``arviz-swiss[plots]``) the file
        says so in a line instead.

        Parameters
        ----------
        path : path
            The file to write, whose name ends in .html.
        overwrite : bool, default False
            Replace a file that is there.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        FileExistsError
            If there is such a file, unless it may be overwritten.
        ValueError
            If the name does not end in .html, or the file that was reported on is of another merge
            by now.
        OSError
            If it cannot be written; then there is no part of it.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import arviz_swiss as az_swiss
        >>> rng = np.random.default_rng(0)
        >>> batches = [{"mu": rng.normal(mean, 1, size=(4, 500))} for mean in (-1, 0, 1)]
        >>> verdict = az_swiss.report(az_swiss.merge(batches, kind="inflated"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     verdict.to_html(Path(folder) / "report.html").name
        'report.html'
        """
        target = _checked_target(path, overwrite)
        merged = self._open()
        findings = list(_shortened(self.findings))
        shown = pictures.draw_pictures(self, merged)
        look = "good" if not self.is_in_doubt else "bad" if self.status == NOT_CERTIFIED else "odd"
        text = page.write_page(
            page.Told(self.headline, look, self.verdict, findings, self.notes), merged, shown
        )
        files.write_bytes(target, text.encode())
        return target

    def _open(self) -> Merged:
        """Return the merged object; refuse what is not the one that the report is of."""
        if self.merged is None:
            raise ValueError("this report knows no merged object: call report(merged).")
        merged = open_merged(self.merged, self.group)
        try:
            check_report(self, merged)
        except ValueError as error:
            raise ValueError(
                "what was reported on is another merge by now: call report(merged) again."
            ) from error
        return merged


def _checked_target(path: Any, overwrite: bool) -> Path:
    """Return where to write a page; refuse what cannot or shall not be written."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be the name of a file, got {type(path).__name__}.")
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"path={os.fspath(path)!r}: a report is written as HTML, so its name must end in "
            f'.html: "{target.stem or "report"}.html".'
        )
    if target.is_dir():
        raise ValueError(f"{target} is a folder: name a file.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} is there already: pass overwrite=True, or another name.")
    return target


def _shortened(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Give what to print: of each flag the worst batches, and one line about the others."""
    by_flag: dict[tuple[str, bool], list[Finding]] = {}
    for finding in findings:
        by_flag.setdefault((finding.flag, bool(finding.batches)), []).append(finding)
    for (flag, _), alike in by_flag.items():
        yield from alike[:MOST_TOLD]
        if others := [label for finding in alike[MOST_TOLD:] for label in finding.batches]:
            yield Finding(
                flag,
                tuple(others),
                f'and {len(others)} more with "{flag}": {brief(others, MOST_LISTED)}.',
                "as for those above; summary(merged) lists all.",
            )


def report(merged: Container | str | PathLike[str], *, group: str = "posterior") -> Report:
    """Say in words whether to trust a merge, and what to do about what speaks against it.

    Parameters
    ----------
    merged : InferenceData, DataTree, or path
        As `merge` returned it, or its file. Refined or certified, the report says so.
    group : str, default "posterior"

    Returns
    -------
    Report
        Prints as text, and shows a table and pictures in a notebook; its method `to_html` writes a
        file to send. Its `findings` hold the batches concerned, what is wrong, and the remedy; its
        `statistics` the numbers: R-hat, effective sizes, shapes, ... of every batch. `summary` and
        `plot_shift` take it as ``report=``.

    Raises
    ------
    TypeError, ValueError
        When `merged` is not what `merge` returned, or all chains of a batch were taken out.

    See Also
    --------
    summary : the numbers behind it as a table
    plot_shift, plot_batches : the pictures

    Examples
    --------
    >>> import numpy as np
    >>> import arviz_swiss as az_swiss
    >>> rng = np.random.default_rng(0)
    >>> batches = {f"b{i}": {"mu": rng.normal(size=(4, 500))} for i in range(9)}
    >>> batches["b7"]["mu"][0] += 1
    >>> verdict = az_swiss.report(az_swiss.merge(batches, kind="inflated"))
    >>> verdict.findings[0].batches
    ('b7',)
    >>> print(verdict.findings[0].what)
    b7 did not converge: R-hat is 1.12 in mu.
    """
    own = os.path.abspath(merged) if isinstance(merged, str | PathLike) else merged
    return replace(judge(open_merged(merged, group)), merged=own, group=group)


def judge(merged: Merged) -> Report:
    """Compute the statistics of a merged object, and put in words what speaks against it."""
    statistics = draw_statistics(merged)
    findings = tuple(find_all(merged, statistics))
    evidence = Evidence(merged, statistics)
    verdict = [_certified(merged)]
    notes = [_rival(merged), _merged_what(merged)]
    # of a certified merge that nothing speaks against, that the batches agree is an aside
    is_aside = evidence.is_certified and not findings
    (notes if is_aside else verdict).append(_in_doubt(evidence, findings))
    if NOTED_ERROR <= (error := expected_error(evidence)) < LARGE_ERROR:
        expected = describe_error(error)
        verdict.append(f"{expected[:1].upper()}{expected[1:]} What helps: {remove_error(merged)}")
    if merged.is_redrawn:
        notes.append(_redrawn(merged))
    elif not merged.is_moved:
        notes.append(
            "Convergence and shape of the batches were not looked at, since these draws were newly "
            'made: see report(merge(idatas, method="swiss")) too.'
        )
    notes += [merged.refinement.describe(), *_of_run(merged), *_lacking(merged)]
    status = None if merged.certificate is None else merged.certificate.verdict.status
    text = "\n".join(line for line in verdict if line)
    return Report(text, findings, statistics, status, tuple(line for line in notes if line))


def check_report(report: Any, merged: Merged) -> Report:
    """Return what a user passed as the report of a merged object; refuse that of another."""
    if not isinstance(report, Report):
        raise TypeError(f"report= takes what report(merged) returned, got {type(report).__name__}.")
    for dim, labels in (("batch", merged.labels), ("parameter", merged.parameters.tolist())):
        others = report.statistics[dim].values.astype(str).tolist()
        if others != labels:
            raise ValueError(
                f"report= is of another merge: its labels along {dim} are {brief(others)}, those "
                f"of merged {brief(labels)}. Pass report(merged), or leave it out."
            )
    own, known = merged.diagnostics, report.statistics
    if not all(name in known and known[name].equals(array) for name, array in own.items()):
        raise ValueError(
            "report= is of another merge of batches with these labels, or of this one before it "
            "was refined. Pass report(merged), or leave it out."
        )
    return report


def _certified(merged: Merged) -> str:
    """Return what the certificate says; why and what to do, if not certified, is a finding."""
    certificate = merged.certificate
    if certificate is None:
        return ""
    if certificate.is_certified:
        text = certificate.describe()
        return f"{text[0].upper()}{text[1:]}"
    status = certificate.verdict.status.capitalize()
    return f"{status} (k-hat {certificate.khat:.2f}): see the first finding."


def _rival(merged: Merged) -> str:
    """Return what the pilot's Gaussian alone would have got, where a certificate tells."""
    if merged.certificate is None:
        return ""
    pilot = merged.groups.get(schema.PILOT)
    how = "" if pilot is None else str(pilot.attrs.get(schema.HOW, ""))
    return describe_pilot(merged.certificate, how)


def _redrawn(merged: Merged) -> str:
    """Return why draws were made anew, and how well."""
    made = merged.redrawn
    return (
        f"The posterior of {brief(made['reshaped'].values.astype(str).tolist())} is far from "
        "Gaussian, so the shared parameters were drawn from their exact density (k-hat "
        f"{float(made['khat']):.2f}, {float(made['effective_size']):.0f} effective of "
        f"{int(made['proposed'])} draws), and the variables of groups given these."
    )


def _of_run(merged: Merged) -> Iterator[str]:
    """Give what `sample` chose, and what did not go as planned."""
    if schema.RUN not in merged.groups:
        return
    attrs = merged.groups[schema.RUN].attrs
    yield f"Sampled as {attrs[schema.RULE]}"
    if plain := attrs[schema.PLAIN]:
        yield f"All batches were sampled with a full warm-up, without a pilot: {plain}."
    if batches := attrs[schema.RESAMPLED_BATCHES]:
        labels = brief(batches.split(","), MOST_LISTED)
        yield f"Sampled with a full warm-up, because short chains did not do: {labels}."
    if skipped := attrs[schema.SKIPPED]:
        yield f"Not refined, or not certified: {skipped}."


def _lacking(merged: Merged) -> Iterator[str]:
    """Give what of the batches is not in the merged object."""
    left_out = merged.attrs.get(schema.LEFT_OUT, "").split(", ")
    if data := ", ".join(name for name in left_out if "/" in name):
        yield (
            f"Without {data}: rows without labels of their own (dims=, coords=) and numbers of a "
            "batch's own groups cannot be put together."
        )
    if computed := ", ".join(name for name in left_out if name and "/" not in name):
        yield f"Without {computed} of draws before they moved: compute anew from the merged ones."
    if unordered := merged.attrs.get(schema.UNORDERED):
        yield (
            f"The order along {unordered} is not known to be that of the full data: "
            "predictions by position would be wrong."
        )


def _merged_what(merged: Merged) -> str:
    attrs, batches, parameters = merged.attrs, len(merged.labels), merged.parameters.size
    text = (
        f"{batches} batch{'es' if batches > 1 else ''}, "
        f"{parameters} parameter{'s' if parameters > 1 else ''}, merged by "
        f'"{merged.method}" from {merged.kind} sub-posteriors.'
    )
    if schema.DROPPED in attrs:
        dropped = [str(label) for label in np.atleast_1d(attrs[schema.DROPPED])]
        text += f" Left out: {brief(dropped)}. It stands for {attrs[schema.STANDS_FOR]}."
    return text


def _in_doubt(evidence: Evidence, findings: tuple[Finding, ...]) -> str:
    merged, labels = evidence.merged, evidence.merged.labels
    named = sorted(named_batches(findings), key=labels.index)
    if findings and evidence.is_certified:
        odd = f"Of {len(labels)} batches, these stand out: {brief(named, 10)}. " if named else ""
        return f"{odd}The merge is certified despite what follows."
    if named:
        verb = "is" if len(named) == 1 else "are"
        return f"{len(named)} of {len(labels)} batches {verb} in doubt: {brief(named, 10)}."
    if findings:
        return "No single batch is in doubt, but the merge as a whole is."
    if len(labels) == 1:
        return f"One batch has no other to agree with. {_unproven(merged)}".strip()
    # a certificate has said it by then
    is_approved = expected_error(evidence) < NOTED_ERROR and not evidence.is_certified
    q, degrees, pvalue = (float(evidence.values(name)) for name in ("q", "q_df", "q_pvalue"))
    return (
        f"{'Nothing speaks against this merge: the' if is_approved else 'The'} batches agree "
        f"(Q = {q:.4g} on {degrees:.0f} degrees of freedom, p = {pvalue:.2g}). {_unproven(merged)}"
    ).strip()


def _unproven(merged: Merged) -> str:
    """Say what the batches cannot tell; nothing once a certificate does."""
    if merged.certificate is not None:
        return ""
    if merged.refinement.is_settled and merged.is_moved:
        return "certify(merged, models) tells what refine left of the error."
    return NO_PROOF
