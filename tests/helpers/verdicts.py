"""What a merged object says of itself."""

from arviz_swiss.merging.merged import open_merged


def certificate_verdict(merged):
    """Return what the certificate of a merged object says, in words."""
    return open_merged(merged, "posterior").certificate.describe()
