import pymc as pm
import pytest

from arviz_swiss.pymc.tempering import tempering_attrs
from arviz_swiss.pymc.worker import build_model, temper


def normal(y):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=pm.Data("y_data", y))
    return model


@pytest.mark.parametrize(
    ("kind", "power", "prior_power"),
    [("inflated", 5.0, 1.0), ("fractionated", 1.0, 0.2), ("full_prior", 1.0, 1.0)],
)
def test_powers_follow_the_kind_and_the_rows(kind, power, prior_power):
    attrs = tempering_attrs(temper(normal([1.0, 2.0]), kind, rows=2, total=10))
    assert attrs["swiss_power"] == pytest.approx(power)
    assert attrs["swiss_prior_power"] == pytest.approx(prior_power)


def test_several_entries_a_row_count_as_one_row():
    attrs = tempering_attrs(temper(normal([1.0, 2.0, 3.0, 4.0]), "inflated", rows=2, total=10))
    assert attrs["swiss_power"] == pytest.approx(5.0)


def test_errors_of_build_name_the_batch():
    def build(rows):
        raise KeyError("age")

    with pytest.raises(KeyError) as caught:
        build_model(build, [1.0], "batch b3")
    assert any("b3" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="batch b3: build returned 'NoneType'"):
        build_model(lambda rows: None, [1.0], "batch b3")
