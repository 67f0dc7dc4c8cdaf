"""A synthetic hospital cohort: invented people, so that every example runs on public data.

Nobody in it exists. The seed is public on purpose: it creates the same people everywhere and protects nothing. Noise
that protects somebody is drawn only in ``discreet.mechanisms``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from discreet._typing import Array
from discreet.tables.schema import Boolean, Categorical, Numeric, Schema, Target

COHORT_SEED = 20_170_403

SEXES = ("female", "male")
REGIONS = ("north", "east", "south", "west", "islands")
INSURANCES = ("statutory", "supplementary", "private", "none")
ADMISSIONS = ("planned", "referred", "emergency", "transferred")
WARDS = ("general", "cardiology", "surgery", "oncology", "neurology", "geriatrics")
SMOKING = ("never", "former", "current")
CARE_LEVELS = ("self care", "home visits", "nursing")

COHORT_SCHEMA = Schema(
    {
        "age": Numeric(18, 100),
        "body_mass_index": Numeric(14, 54),
        "systolic_pressure": Numeric(80, 220),
        "glucose": Numeric(3, 20),
        "creatinine": Numeric(30, 300),
        "days_in_hospital": Numeric(0, 30),
        "medications": Numeric(0, 30),
        "visits_last_year": Numeric(0, 20),
        "sex": Categorical(SEXES),
        "region": Categorical(REGIONS),
        "insurance": Categorical(INSURANCES),
        "admission": Categorical(ADMISSIONS),
        "ward": Categorical(WARDS),
        "smoking": Categorical(SMOKING),
        "diabetes": Boolean(),
        "lives_alone": Boolean(),
    },
    target=Target("readmitted", ("no", "yes")),
)
"""Public domains of the cohort's columns; ``readmitted`` within the year is to be predicted."""

CARE_SCHEMA = COHORT_SCHEMA.with_target("care_level", CARE_LEVELS)
"""The same columns with the care needed after discharge to be predicted: three classes."""


def make_cohort(n_people: int = 50_000, seed: int = COHORT_SEED) -> Any:
    """Invent a cohort of hospital patients, one row each.

    Ages, measurements and history depend on each other through two hidden traits, frailty and lifestyle. Some
    cells are missing and some measurements lie outside the declared bounds, as in real data. About three in ten
    are readmitted; the best linear rule on the declared columns gets about 83% right.

    Parameters
    ----------
    n_people : number of rows.
    seed : public seed of the invention.

    Returns
    -------
    pyarrow.Table
        The columns of ``COHORT_SCHEMA`` and the targets ``readmitted`` and ``care_level``.

    Privacy
    -------
    None is needed: the people are invented from a public seed.

    Examples
    --------
    >>> table = make_cohort(1000)
    >>> table.num_rows, table.column_names[:3]
    (1000, ['age', 'body_mass_index', 'systolic_pressure'])
    >>> COHORT_SCHEMA.transform(table).shape
    (1000, 34)
    """
    import pyarrow as pa

    if isinstance(n_people, bool) or not isinstance(n_people, int) or n_people < 1:
        raise ValueError(f"n_people must be a whole number of at least 1, got {n_people!r}")
    # Public synthetic data, not privacy noise: the only place where a known seed is right.
    rng = np.random.default_rng(seed)
    people = _people(rng, n_people)
    risk = _risk_of_readmission(people)
    readmitted = risk + rng.logistic(0.0, 1.0, n_people) > 0
    need = _need_of_care(people) + rng.logistic(0.0, 0.8, n_people)
    care_level = np.digitize(need, [0.0, 2.2])
    columns = {name: _published(rng, name, people[name]) for name in COHORT_SCHEMA.columns}
    columns["readmitted"] = pa.array(np.where(readmitted, "yes", "no"))
    columns["care_level"] = pa.array(np.array(CARE_LEVELS)[care_level])
    return pa.table(columns)


def _people(rng: Generator, n: int) -> dict[str, NDArray[Any]]:
    """Return complete rows, before cells are removed."""
    age = np.clip(rng.normal(58, 19, n), 18, 99).round()
    frailty = rng.normal(0, 1, n) + (age - 58) / 25
    lifestyle = rng.normal(0, 1, n)
    smoking = np.array(SMOKING)[np.digitize(lifestyle + rng.normal(0, 1, n), [0.4, 1.5])]
    bmi = 26 + 2.2 * lifestyle + rng.normal(0, 3.8, n)
    diabetes = frailty + 0.14 * (bmi - 26) + rng.logistic(0, 0.8, n) > 2.2
    admission_urgency = 0.6 * frailty + rng.logistic(0, 0.8, n)
    stay = rng.gamma(2.0, 1.8 * np.exp(0.28 * np.clip(frailty, -3, 3)))
    ward_scores = rng.gumbel(0, 1, (n, len(WARDS)))
    ward_scores += np.array([1.2, 0.5, 0.9, 0.1, 0.1, -0.6])
    ward_scores[:, 1] += 0.3 * frailty
    ward_scores[:, 5] += (age - 58) / 14
    alone = rng.logistic(0, 1, n) + (age - 58) / 22 > 1.0
    return {
        "age": age,
        "body_mass_index": bmi.round(1),
        "systolic_pressure": (124 + 6 * frailty + 4 * lifestyle + rng.normal(0, 14, n)).round(),
        "glucose": (5.4 + 2.6 * diabetes + rng.gamma(2.0, 0.45, n)).round(1),
        "creatinine": (72 * np.exp(0.13 * frailty + rng.normal(0, 0.24, n))).round(),
        "days_in_hospital": stay.round(),
        "medications": rng.poisson(np.exp(1.1 + 0.32 * np.clip(frailty, -3, 3) + 0.35 * diabetes)),
        "visits_last_year": rng.poisson(np.exp(0.35 + 0.42 * np.clip(frailty, -3, 3))),
        "sex": rng.choice(SEXES, n, p=[0.52, 0.48]),
        "region": rng.choice(REGIONS, n, p=[0.24, 0.2, 0.27, 0.23, 0.06]),
        "insurance": rng.choice(INSURANCES, n, p=[0.61, 0.2, 0.15, 0.04]),
        "admission": np.array(ADMISSIONS)[np.digitize(admission_urgency, [-0.2, 0.9, 2.9])],
        "ward": np.array(WARDS)[np.argmax(ward_scores, axis=1)],
        "smoking": smoking,
        "diabetes": diabetes,
        "lives_alone": alone,
    }


def _risk_of_readmission(people: dict[str, NDArray[Any]]) -> Array:
    """Return the log-odds of readmission: mostly linear, with two interactions that no linear rule can capture."""
    age, stay = people["age"], people["days_in_hospital"]
    effect = 0.038 * (age - 58)
    effect += 0.05 * (people["body_mass_index"] - 26)
    effect += 0.016 * (people["systolic_pressure"] - 124)
    effect += 0.022 * (people["creatinine"] - 72)
    effect += 0.22 * (np.minimum(stay, 12) - 4)
    effect += 0.16 * (people["medications"] - 4)
    effect += 0.38 * (np.minimum(people["visits_last_year"], 6) - 1.5)
    effect += _by_category(people["admission"], ADMISSIONS, (-0.9, -0.2, 0.9, 1.1))
    effect += _by_category(people["ward"], WARDS, (0.0, 0.5, -0.8, 1.0, 0.2, 0.6))
    effect += _by_category(people["smoking"], SMOKING, (-0.3, 0.1, 0.8))
    effect += _by_category(people["insurance"], INSURANCES, (0.0, -0.2, -0.4, 0.8))
    effect += 0.7 * people["diabetes"] + 0.5 * people["lives_alone"]
    effect += 0.8 * (people["diabetes"] & (people["smoking"] == "current"))
    effect += 0.5 * ((age > 75) & people["lives_alone"])
    return np.asarray(0.8 * (effect - 1.6), dtype=np.float64)


def _need_of_care(people: dict[str, NDArray[Any]]) -> Array:
    """Return the hidden need of care after discharge, later split into three levels."""
    effect = 0.055 * (people["age"] - 58)
    effect += 0.14 * (np.minimum(people["days_in_hospital"], 14) - 4)
    effect += 0.09 * (people["medications"] - 4)
    effect += _by_category(people["ward"], WARDS, (0.0, -0.2, 0.4, 0.6, 1.1, 1.0))
    effect += 0.9 * people["lives_alone"] + 0.3 * people["diabetes"]
    return np.asarray(1.2 * (effect - 0.5), dtype=np.float64)


def _by_category(values: NDArray[Any], categories: tuple[str, ...], effects: tuple[float, ...]) -> Array:
    positions = dict(zip(categories, effects, strict=True))
    return np.array([positions[str(value)] for value in values])


# Probability that a cell is missing; columns not listed are complete.
_MISSING = {
    "body_mass_index": 0.06,
    "glucose": 0.04,
    "creatinine": 0.05,
    "smoking": 0.03,
    "lives_alone": 0.02,
}


def _published(rng: Generator, name: str, values: NDArray[Any]) -> Any:
    """Return the column as recorded, with missing cells."""
    import pyarrow as pa

    missing = rng.random(len(values)) < _MISSING.get(name, 0.0)
    return pa.array(values, mask=missing)
