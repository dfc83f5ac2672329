import numpy as np
import pytest

import arviz_swiss as az_swiss
from arviz_swiss.data import containers, schema

CONSTANTS = {name: value for name, value in vars(schema).items() if isinstance(value, str)}
OURS = {name: value for name, value in CONSTANTS.items() if value.startswith(schema.PREFIX)}
DESCRIBED = {
    *schema.GROUPS,
    *schema.BATCH_ATTRIBUTES,
    *schema.FILE_GROUPS,
    *schema.FILE_ATTRIBUTES,
    *(name for names in schema.ATTRIBUTES.values() for name in names),
    *(name for names in schema.VARIABLES.values() for name in names),
}


@pytest.mark.parametrize("name", sorted(set(OURS) - {"PREFIX"}))
def test_every_name_of_ours_is_described(name):
    assert OURS[name] in DESCRIBED


def test_every_description_is_of_a_name_and_says_something():
    assert set(schema.ATTRIBUTES) | set(schema.VARIABLES) <= set(schema.GROUPS)
    for meanings in (schema.GROUPS, schema.BATCH_ATTRIBUTES, *schema.ATTRIBUTES.values()):
        assert set(meanings) <= {*CONSTANTS.values(), schema.unconstrained(schema.POSTERIOR)}
    for meanings in (schema.GROUPS, *schema.ATTRIBUTES.values(), *schema.VARIABLES.values()):
        assert all(len(text) > 2 for text in meanings.values())


def test_what_a_merged_object_holds_is_described(random_batches):
    batches = random_batches(np.random.default_rng(0), 3)
    merged = containers.read(az_swiss.merge(batches, kind="inflated")).groups
    assert set(merged) <= set(schema.GROUPS)
    for group in (schema.TRANSFORM, schema.DIAGNOSTICS):
        assert set(merged[group].data_vars) <= set(schema.VARIABLES[group])
        assert set(merged[group].attrs) <= set(schema.ATTRIBUTES.get(group, ()))
    ours = {name for name in merged["posterior"].attrs if name.startswith(schema.PREFIX)}
    assert ours <= set(schema.ATTRIBUTES[schema.POSTERIOR])


def test_names_made_from_others():
    assert schema.unconstrained("prior") == "unconstrained_prior"
    assert schema.owner_coord("group") == "batch_group"
