"""Two functions are told apart by their source and by the values that they carry."""

import dataclasses
import functools
import types

import numpy as np
import pytest

from arviz_swiss.merging.origin import differing
from arviz_swiss.parallel.functions import identify

LEVEL = 1.0


@dataclasses.dataclass
class Prior:
    sd: float


def closure(value):
    def function(x):
        return x, value

    return function


def default(value):
    def function(x, value=value, *, other=3):
        return x, value, other

    return function


def helped(value):
    def helper(x):
        return x * value

    return lambda value: helper(value)


def add(x, value=0.0):
    return x + value


class Callable:
    def __init__(self, value):
        self.value = value
        self.again = self.method

    def __call__(self, x):
        return x + self.value

    def method(self, x):
        return x + self.value


MAKERS = {
    "closure": closure,
    "default": default,
    "keyword": lambda value: functools.partial(add, value=value),
    "positional": lambda value: functools.partial(add, value),
    "nested": lambda value: functools.partial(functools.partial(add, 1.0), value=value),
    "helper": helped,
    "object": Callable,
    "method": lambda value: Callable(value).method,
    "array": lambda value: closure(np.append(np.zeros(5000), [value, 1, 2, 3])),
    "dict": lambda value: closure({"prior": {"sd": [value, 2.0]}}),
    "dataclass": lambda value: closure(Prior(value)),
    "namespace": lambda value: closure(types.SimpleNamespace(sd=value)),
    "set": lambda value: closure({value, 2.0, "text"}),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_values_that_a_function_carries(make):
    one, same, other = (identify(make(value)) for value in (10.0, 10.0, 0.01))
    assert differing(one, same) == []
    assert len(differing(one, other)) == 1
    assert one["source code"] == other["source code"]


def test_a_partial_overrides_the_default():
    assert differing(identify(add), identify(functools.partial(add, value=0.0))) == []
    assert differing(identify(add), identify(functools.partial(add, value=1.0))) == ["value"]


def test_global_variables_but_not_attributes_of_their_name(monkeypatch):
    def uses(x):
        return [x + LEVEL for _ in range(3)]

    def has_attribute(x):
        return x.LEVEL

    before = [identify(uses), identify(has_attribute)]
    monkeypatch.setitem(globals(), "LEVEL", 2.0)
    assert differing(before[0], identify(uses)) == ["LEVEL"]
    assert differing(before[1], identify(has_attribute)) == []


def source_of(text, tmp_path, name):
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    namespace = {}
    exec(compile(text, str(path), "exec"), namespace)
    return identify(namespace["build"])["source code"]


def test_only_the_code_of_the_source_counts(tmp_path):
    plain = source_of("def build(x):\n    return x + 1\n", tmp_path, "plain")
    told = source_of("def build(x):\n    # why\n    return (x +\n        1)\n", tmp_path, "told")
    other = source_of("def build(x):\n    return x + 2\n", tmp_path, "other")
    assert plain is not None
    assert plain == told != other


def test_source_that_cannot_be_had():
    namespace = {}
    exec("def build(x, sd=1.0):\n    return x", namespace)
    typed = identify(namespace["build"])
    assert typed["source code"] is None
    assert differing(typed, {**typed, "source code": "ab"}) == []
    assert differing(typed, {**typed, "sd": "ab"}) == ["sd"]
    assert identify(len) == {"source code": None}


def test_objects_of_which_nothing_is_known_do_not_differ():
    rng = [np.random.default_rng(seed) for seed in range(2)]
    assert differing(identify(closure(rng[0])), identify(closure(rng[1]))) == []
