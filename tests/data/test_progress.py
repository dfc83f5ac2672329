import re

import numpy as np
import pytest
from normal_density import Normal
from tqdm.auto import tqdm

import arviz_swiss as az_swiss
from arviz_swiss.data.progress import Bar, progress


def last_line(text):
    return re.split(r"[\r\n]+", text.strip())[-1]


def test_a_bar_that_ends_early_ends_at_100(capsys):
    with progress(10, "Refining", unit="density") as bar:
        assert bar.stage("waiting") == ""
        for _ in range(4):
            bar()
        assert bar.stage("round 2") == "waiting"
        bar.finish()
    shown = capsys.readouterr().err
    assert "Refining, waiting:   0%" in shown
    assert re.search(r"Refining, round 2: 100%.* 4/4 ", last_line(shown))


def test_a_bar_that_is_not_shown_does_nothing(capsys):
    def use(bar):
        bar.stage("waiting")
        bar()
        bar.finish()

    use(Bar("Refining"))
    with progress(10, "Refining", show=False) as bar:
        use(bar)
    with tqdm(total=10, disable=True) as shown:
        use(Bar("Refining", shown))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("rounds", [1, 5])
def test_the_bar_of_refine_ends_at_100(capsys, rounds):
    rng = np.random.default_rng(3)
    densities = [Normal(centre) for centre in (0.5, 1.0)]
    draws = [{"x": rng.normal(one.centre, 2**-0.5, size=(2, 100, 1))} for one in densities]
    merged = az_swiss.merge(draws, kind="inflated")
    refined = az_swiss.refine(merged, densities, rounds=rounds, random_seed=1)
    taken = refined["swiss_transform"].sizes["round"] - 1
    assert taken == min(rounds, 2)
    shown = capsys.readouterr().err
    assert f"round 1 of at most {rounds}" in shown
    words = "1 round" if taken == 1 else f"{taken} rounds"
    # the gradients of both batches are looked at before
    done = 2 * (taken + 1)
    assert re.search(rf"Refining, {words}: 100%.* {done}/{done} ", last_line(shown))
