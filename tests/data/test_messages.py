import warnings

import pytest

import arviz_swiss as az_swiss
from arviz_swiss.data.messages import MergeWarning, brief


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (list("abcde"), "a, b, c, d, e"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
    ],
)
def test_lists_in_words_are_cut_short(names, words):
    assert brief(names) == words


def test_the_number_of_names_can_be_chosen():
    assert brief(list("abc"), most=1) == "a and 2 more"


def test_one_class_of_warnings_silences_all():
    assert az_swiss.MergeWarning is MergeWarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", UserWarning)
        warnings.warn("x", MergeWarning, stacklevel=1)
    assert caught == []
