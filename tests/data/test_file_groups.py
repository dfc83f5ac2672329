"""Groups of files that are opened when they are asked for."""

import numpy as np
import pytest
import xarray as xr

from arviz_swiss.data import containers, file_groups
from arviz_swiss.data.file_groups import FileGroups


@pytest.fixture
def file(to_container, tmp_path):
    draws = {"x": np.arange(20.0).reshape(2, 10)}
    batch = to_container(draws, sample_stats={"lp": np.zeros((2, 10))})
    batch.to_netcdf(tmp_path / "batch.nc")
    return str(tmp_path / "batch.nc")


def test_groups_are_those_of_the_file(file):
    groups, eager = FileGroups(file, "posterior", "batch 0"), containers.read(file).groups
    assert set(groups) == set(eager) == {"posterior", "sample_stats"}
    assert len(groups) == 2
    for name in eager:
        xr.testing.assert_identical(groups[name], eager[name])
    groups.close()
    containers.close(eager)


def test_only_groups_that_are_asked_for_are_opened(file, monkeypatch):
    opened, open_group = [], containers.open_group
    monkeypatch.setattr(
        containers, "open_group", lambda path, name: opened.append(name) or open_group(path, name)
    )
    groups = FileGroups(file, "posterior", "batch 0")
    assert "sample_stats" in groups
    assert "prior" not in groups
    assert groups.get("prior") is None
    assert groups["posterior"] is groups["posterior"]
    assert opened == ["posterior"]
    groups.close()


def test_coordinates_of_the_root_are_inherited(tmp_path):
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), np.zeros((2, 10, 3)))})
    root = xr.Dataset(coords={"k": ["a", "b", "c"]})
    tree = xr.DataTree.from_dict({"/": root, "/posterior": posterior})
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    groups = FileGroups(str(tmp_path / "tree.nc"), "posterior", "batch 0")
    assert groups["posterior"]["k"].values.tolist() == ["a", "b", "c"]
    groups.close()


def test_a_file_without_groups_holds_the_draws(tmp_path):
    draws = xr.Dataset({"x": (("chain", "draw"), np.zeros((2, 10)))})
    draws.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    groups = FileGroups(str(tmp_path / "draws.nc"), "posterior", "batch 0")
    assert list(groups) == ["posterior"]
    groups.close()


def test_errors_name_the_batch(file, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="batch 3 could not be read: no file or folder"):
        FileGroups(str(tmp_path / "none.nc"), "posterior", "batch 3")
    (tmp_path / "text.nc").write_text("no file of draws")
    with pytest.raises(ValueError, match="batch 3 could not be read"):
        FileGroups(str(tmp_path / "text.nc"), "posterior", "batch 3")
    # what is damaged inside is found when it is opened
    monkeypatch.setattr(file_groups, "_names", lambda path: ["posterior", "lost"])
    groups = FileGroups(file, "posterior", "batch 3")
    with pytest.raises(ValueError, match="batch 3 could not be read"):
        groups["lost"]
