"""Runs of a subject on its two neighbors, as many as the time allows, and what an attacker reads off them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.attack import FEWEST, PROJECTION, Attack, Evidence, judged, planned_runs
from discreet.audit.sensitivity import perturbs_objective
from discreet.audit.transcripts import Run, transcripts
from discreet.audit.witness import PlannedRun, Weakener
from discreet.mechanisms.entropy import insecure_noise
from discreet.mechanisms.recording import recorded_by
from discreet.privacy import accountants

if TYPE_CHECKING:
    from discreet.audit.subjects import Subject

Array = NDArray[np.float64]

FOREVER = float("inf")


def attacked(
    subject: Subject,
    runs: int,
    *,
    delta: float = 1e-2,
    confidence: float = 0.95,
    seed: int | None = 0,
    share: float = 1.0,
    seconds: float = FOREVER,
) -> Attack:
    """Run a subject, or its twin with ``share`` of the noise, ``runs`` times on either side, and bound epsilon.

    Without a seed the real noise is attacked by what is released; likelihoods of transcripts, and all twins, need one.
    """
    found = gathered(subject, runs, seed=seed, share=share, seconds=seconds)
    return judged(found, claimed(subject, delta), delta=delta, confidence=confidence)


def claimed(subject: Subject, delta: float) -> float:
    """The epsilon that is charged for one run, at ``delta``."""
    return accountants.epsilon(subject.event, delta, subject.relation)


def gathered(
    subject: Subject,
    runs: int,
    *,
    seed: int | None,
    share: float = 1.0,
    start: int = 0,
    seconds: float = FOREVER,
    fewest: int = FEWEST,
) -> Evidence:
    """Evidence from ``runs`` runs on either side, fewer (at least ``fewest``) if ``seconds`` of work are over.

    ``start`` counts earlier runs with the same seed: evidence that begins where another ended is independent of it.
    """
    options: dict[str, Any] = {"share": share, "start": start, "seconds": seconds, "fewest": fewest}
    if isinstance(subject.first, PlannedRun) and perturbs_objective(subject.first.plan):
        return planned_runs(subject.first, subject.second, runs, seed=seed, **options)
    if subject.composed and seed is not None:
        heard = transcripts(subject.run, subject.first, subject.second, runs, seed=seed, **options)
        return Evidence(
            sees="transcript",
            score="likelihood ratio of all answers of all mechanisms",
            shown=heard.released,
            scores=(heard.first, heard.second),
            losses=(heard.first, -heard.second),
        )
    return _shown(subject, runs, seed=seed, **options)


def _shown(
    subject: Subject, runs: int, *, seed: int | None, share: float, start: int, seconds: float, fewest: int
) -> Evidence:
    """What is released, and nothing else: the two sides in turn."""
    shown: tuple[list[Array], list[Array]] = ([], [])
    begin = time.process_time()
    for place in range(start, start + runs):
        for side, data in enumerate((subject.first, subject.second)):
            number = None if seed is None else (seed << 40) + (place << 1) + side
            shown[side].append(released(subject.run, data, 1, seed=number, share=share)[0])
        if place + 1 >= start + fewest and time.process_time() - begin > seconds:
            break
    rows = np.stack(shown[0]), np.stack(shown[1])
    density = subject.log_density
    if density is None:
        return Evidence("released numbers", PROJECTION, rows, None, None)
    ratios = [
        np.array([density(subject.first, row, share) - density(subject.second, row, share) for row in side])
        for side in rows
    ]
    losses = (ratios[0], -ratios[1])
    return Evidence("released numbers", "their likelihood ratio", rows, (ratios[0], ratios[1]), losses)


def released(run: Run, data: Any, runs: int, *, seed: int | None, share: float = 1.0) -> Array:
    """The numbers of ``runs`` runs, one row each; seeded, or with real noise if ``seed`` is None."""
    if share != 1.0 and seed is None:
        raise ValueError("weakened noise is never secure: pass a seed")
    if seed is None:
        return np.stack([_numbers(run(data)) for _ in range(runs)])
    with insecure_noise(seed):
        rows = []
        for _ in range(runs):
            with recorded_by(Weakener(share)):
                rows.append(_numbers(run(data)))
    return np.stack(rows)


def _numbers(published: Any) -> Array:
    return np.nan_to_num(np.ravel(np.asarray(published, dtype=np.float64)))
