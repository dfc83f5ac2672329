"""What a random case says of its batches: labels, powers, attributes, arguments of merge."""

import fuzz_oracle as oracle
import numpy as np
import pandas as pd

LETTERS = np.array(list("qwertyuiop"))


def choose_powers(rng, kind, count):
    """Return likelihood and prior powers, and how `merge` is told of them."""
    if kind == "full_prior":
        told = rng.choice(["kind", "attrs"])
        return np.ones(count), np.ones(count), str(told)
    if rng.random() < 0.4:
        told = str(rng.choice(["kind", "attrs"]))
        if kind == "inflated":
            return np.full(count, float(count)), np.ones(count), told
        return np.ones(count), np.full(count, 1 / count), told
    sizes = rng.integers(5, 50, count)
    if kind == "fractionated":
        return np.ones(count), sizes / sizes.sum(), "attrs"
    powers = sizes.sum() / sizes
    if rng.random() < 0.2:
        powers = rng.uniform(0.8, 1.5) * powers
    told = rng.choice(["attrs", "list", "dict", "series", "range", "array"])
    if np.ptp(powers) == 0 and rng.random() < 0.5:
        told = "scalar"
    return powers, np.ones(count), str(told)


def choose_labels(rng, count, spoken):
    """Return the batches' labels, and the keys of a mapping, None for a list."""
    if spoken == "range":
        keys = rng.permutation(count).tolist()
        return [str(key) for key in keys], keys
    if spoken in ("dict", "series") or rng.random() < 0.5:
        labels = [f"{letter}{letter}" for letter in rng.permutation(LETTERS)[:count]]
        return labels, (labels if rng.random() < 0.7 else None)
    return [f"b{position}" for position in range(count)], None


def choose_kept(rng, count):
    if count == 1 or rng.random() < 0.7:
        return list(range(count))
    gone = rng.permutation(count)[: rng.integers(1, count)]
    return [position for position in range(count) if position not in gone]


def missing_prior(kind, powers, prior_powers, kept):
    if kind == "fractionated":
        return False
    powers, prior_powers, _ = oracle.keep_powers(kind, powers, prior_powers, kept)
    return abs(1 - np.sum(prior_powers / powers)) > 1e-6


def choose_attrs(rng, spoken, kind, powers, prior_powers, count):
    if spoken != "attrs":
        return [{} for _ in range(count)]
    return [
        {
            "swiss_kind": kind,
            "swiss_power": float(powers[b]),
            "swiss_prior_power": float(prior_powers[b]),
        }
        for b in range(count)
    ]


def choose_spoken(rng, spoken, kind, powers, labels, keys):
    """Return the arguments that tell kind and powers."""
    if spoken == "attrs":
        return {}
    if spoken == "kind":
        return {"kind": kind}
    order = rng.permutation(len(labels))
    if spoken == "scalar":
        value = float(powers[0])
    elif spoken == "list":
        value = powers.tolist()
    elif spoken == "array":
        value = powers
    elif spoken == "dict":
        value = {labels[b]: float(powers[b]) for b in order}
    elif spoken == "series":
        value = pd.Series(powers[order], index=[labels[b] for b in order])
    else:
        by_key = pd.Series(powers, index=keys).sort_index()
        value = pd.Series(by_key.to_numpy(), index=pd.RangeIndex(len(keys)))
        value = value[::-1] if rng.random() < 0.5 else value
    return {"powers": value, "kind": kind}


def choose_transforms(rng, variables):
    chosen = {one.name: one.transform for one in variables if one.transform is not None}
    if rng.random() < 0.3:
        chosen |= {one.name: None for one in variables if one.transform is None}
    return {"transforms": chosen} if chosen else {}


def choose_drop(rng, labels, kept):
    gone = [position for position in range(len(labels)) if position not in kept]
    numbered = any(label.isdigit() for label in labels)
    by_label = numbered or rng.random() < 0.5
    named = [labels[position] if by_label else position for position in rng.permutation(gone)]
    named = [one if isinstance(one, str) else int(one) for one in named]
    return named[0] if len(named) == 1 and rng.random() < 0.5 else named
