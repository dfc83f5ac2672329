"""Rows of a batch in a file, column by column, against Arrow's own frame of the whole table."""

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from arviz_swiss.parallel.batch_rows import BatchRows, _by_columns, load_rows
from arviz_swiss.parallel.frames import PANDAS

PLAIN = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3]})

BY_COLUMNS = {
    "plain": PLAIN,
    "float32": PLAIN.astype("float32"),
    "nullable": pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
    "later range": PLAIN.set_axis(pd.RangeIndex(5, 8)),
    "dots": PLAIN.set_axis(["a", "a.b"], axis=1),
}
WHOLE = {
    "labels that are numbers": PLAIN.set_axis([0, 1], axis=1),
    "labels with a name": PLAIN.rename_axis("columns", axis=1),
    "index": PLAIN.set_axis([3, 1, 2]),
    "no columns": PLAIN[[]],
    "text": PLAIN.assign(c=["x", "y", "z"]),
    "categories": PLAIN.assign(c=pd.Categorical(["x", "y", "x"])),
}


@pytest.mark.parametrize("case", [*BY_COLUMNS, *WHOLE])
def test_columns_make_the_frame_that_the_table_does(case, tmp_path):
    frame = (BY_COLUMNS | WHOLE)[case]
    path = str(tmp_path / "batch.parquet")
    parquet.write_table(pa.Table.from_pandas(frame), path)
    batch = BatchRows(path, len(frame), PANDAS)
    assert (_by_columns(batch) is not None) == (case in BY_COLUMNS)
    pd.testing.assert_frame_equal(batch.load(), load_rows([batch]))
