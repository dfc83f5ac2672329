"""What the demo says of two runs, and what it draws, by runs that are made up."""

import numpy as np
import pytest
import xarray as xr

from arviz_swiss import demo


def run(seconds, chains=4, shift=0.0):
    """Return draws about the truth with sds of .01, moved by so many sds."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((chains, 500, len(demo.TERMS)))
    noise = (noise - noise.mean((0, 1))) / noise.std((0, 1))
    beta = xr.DataArray(demo.TRUTH + 0.01 * (noise + shift), dims=["chain", "draw", "term"])
    return demo.Run({"posterior": xr.Dataset({"beta": beta})}, seconds)


def test_estimates_are_compared_in_sds_of_the_whole_run():
    table = demo.compare_estimates(run(1, shift=0.3), run(1))
    assert list(table.index) == demo.TERMS
    np.testing.assert_allclose(table["shift in sds"], 0.3)
    np.testing.assert_allclose(table["whole mean"], demo.TRUTH, atol=1e-12)
    np.testing.assert_allclose(table["divided sd"], 0.01)


def test_costs_are_seconds_for_the_same_number_of_effective_draws():
    table = demo.compare_costs(run(10, chains=8), run(80, chains=2))
    assert list(table["seconds"]) == [10, 80]
    fewest = table["effective draws (fewest)"]
    # independent draws: the estimate of their number errs by some 10%
    assert fewest["divided"] / fewest["whole"] == pytest.approx(4, rel=0.3)
    each = table["seconds per 1000 effective draws"]
    np.testing.assert_allclose(each, 1000 * table["seconds"] / fewest, rtol=0.01)


@pytest.mark.parametrize(
    "seconds, words", [((10, 80), "8.0 times faster"), ((80, 10), "8.0 times slower")]
)
def test_the_picture_says_what_was_faster(tmp_path, monkeypatch, seconds, words):
    said = []
    headline = demo.headline
    monkeypatch.setattr(
        demo, "headline", lambda figure, text: (said.append(text), headline(figure, text))
    )
    divided, whole = run(seconds[0], shift=0.25), run(seconds[1])
    demo.save_picture(divided, whole, tmp_path / "demo.png")
    assert said == ["200,000 rows: means at most 0.25 posterior sds apart", words]
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_rows_are_the_same_every_time_and_enough():
    data = demo.simulate()
    assert len(data) >= 200_000
    assert data.equals(demo.simulate())
    assert set(demo.TERMS[1:]) < set(data)
