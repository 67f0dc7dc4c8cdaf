"""The attack on transcripts: laws that are laws, ratios that integrate to one, promises kept, half noise caught.

Noise is seeded. Means of likelihood ratios are compared at more than five standard errors.
"""

import itertools
import math

import numpy as np
import pytest

from discreet import PrivateLinearSVC
from discreet.audit import attack as attacking
from discreet.audit import catalog, subjects, workflow
from discreet.audit.likelihoods import known, law_of, log_likelihood
from discreet.audit.replay import replay
from discreet.audit.trace import Replayer, trace
from discreet.audit.transcripts import _Forced, transcript_laws, transcripts
from discreet.mechanisms.level_selection import LeveledSelection, LeveledTotals
from discreet.mechanisms.recording import Call, Recorder, Sample, recorded_by
from discreet.mechanisms.repetition import poisson_sample
from discreet.mechanisms.samplers.entropy import Entropy, fresh_entropy, insecure_noise
from discreet.mechanisms.selection import ExponentialMechanism, LaplaceNoisyMax
from discreet.mechanisms.sparse_vector import HALTED, RELEASED, UNSTABLE, SparseVector, StableRelease
from discreet.mechanisms.voting import ConfidentPlurality, NoisyPlurality
from discreet.privacy.guarantee import Neighboring

pytestmark = pytest.mark.slow

MECHANISMS = {subject.name: subject for subject in catalog.mechanisms()}
SCORES = [0.0, -0.7, 0.4]


def heard(run):
    return trace(lambda _: run(fresh_entropy()), None).calls


def leveled(entropy):
    mechanism = LeveledSelection(64, 1.0, 2)
    return mechanism.select(LeveledTotals(np.array([40, -90]), mechanism.shift, 1 << 10), entropy)


CHOICES = {
    "exponential": (lambda e: ExponentialMechanism(1.0, 1.0, 3).select(SCORES, e), range(3)),
    "laplace": (lambda e: LaplaceNoisyMax(1.0, 1.0, 3).select(SCORES, e), range(3)),
    "leveled": (leveled, range(4)),
    "plurality": (
        lambda e: NoisyPlurality(1.0, 3, n_queries=1).start(e).answer(np.array([[4, 5, 3]])),
        [np.array([k]) for k in range(3)],
    ),
    "stable": (lambda e: StableRelease(1.0, 1e-2).release(1, 3, e), [True, False]),
}


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", CHOICES)
def test_the_laws_of_choices_add_up_to_one(name, share):
    run, answers = CHOICES[name]
    call = heard(run)[0]
    law = law_of(call)
    total = sum(math.exp(law.log(call, answer, share)) for answer in answers)
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", ["exponential", "laplace", "plurality"])
def test_the_twin_of_a_choice_has_the_law_that_its_likelihood_says(name):
    call = heard(CHOICES[name][0])[0]
    law, rng = law_of(call), np.random.default_rng(0)
    drawn = [int(np.ravel(law.draw(call, 0.5, rng))[0]) for _ in range(4000)]
    for k, answer in enumerate(CHOICES[name][1]):
        chance = math.exp(law.log(call, answer, 0.5))
        assert np.mean(np.array(drawn) == k) == pytest.approx(chance, abs=5 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize("refresh", [False, True])
def test_the_law_of_a_stream_adds_up_to_one(refresh):
    """Over all outcomes of three questions, asked in two calls of one stream that halts after two refusals."""
    vector = SparseVector.calibrated(1.0, 1e-2, max_unstable=2, n_queries=4, refresh=refresh)
    distances = np.array([1, 0, 3]) + vector.margin

    def run(entropy):
        stream = vector.start(entropy)
        return stream.ask_many(distances[:2]), stream.ask_many(distances[2:])

    calls, total = heard(run), 0.0
    for outcomes in itertools.product((RELEASED, UNSTABLE), repeat=3):
        told = list(outcomes)
        if told[:2] == [UNSTABLE, UNSTABLE]:
            if told[2] == RELEASED:
                continue  # nothing is told after two refusals: the one halted outcome is counted once
            told[2] = HALTED
        parts = (told[:2], told[2:])
        total += math.exp(
            log_likelihood(
                [
                    Call(**{**vars(call), "output": np.array(part)})
                    for call, part in zip(calls, parts, strict=True)
                ]
            )
        )
    assert total == pytest.approx(1.0, abs=1e-9)


def test_a_check_and_its_vote_are_both_counted():
    mechanism = ConfidentPlurality(3, 1.0, 1.0, 2, 1, 1)
    calls = heard(lambda e: mechanism.start(e).answer(np.array([[9, 1]])))
    assert len(calls) == 2
    assert known(calls)
    assert -1e-3 < log_likelihood(calls) < 0


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.lemma("audit.md#theorem-1")
def test_ratios_integrate_to_one(name, share):
    """E exp(-ratio) under the first law is the mass of the second; where all transcripts can be listed, exactly."""
    subject = MECHANISMS[name]
    found = transcripts(subject.run, subject.first, subject.second, 250, seed=1, share=share)
    laws = transcript_laws(subject.run, subject.first, subject.second, share=share)
    if laws is not None:
        assert [float(law.sum()) for law in laws] == pytest.approx([1.0, 1.0], abs=1e-6)
        listed = np.log(laws[0] / laws[1])
        seen = np.concatenate([found.first, found.second])
        assert np.abs(seen[:, None] - listed).min(axis=1).max() < 1e-9
        return
    for losses in (found.first, -found.second):
        masses = np.exp(-losses)
        assert masses.mean() == pytest.approx(1.0, abs=6 * masses.std() / math.sqrt(250) + 0.03)


@pytest.mark.parametrize("name", ["GaussianMechanism", "GammaNormMechanism", "TreeMechanism, 4 steps"])
def test_few_transcripts_show_most_of_a_claim_and_catch_the_twin(name):
    found = attacking.attacked(MECHANISMS[name], 400, seed=3)
    assert found.sees == "transcript"
    assert not found.refuted
    assert 0.5 * found.claimed < found.exact.epsilon <= found.claimed
    assert attacking.attacked(MECHANISMS[name], 300, seed=4, share=0.5).refuted


def svm(solver, relation="replace-one"):
    return subjects.of(
        PrivateLinearSVC(1.0, 1e-2, classes=[0, 1], neighboring=relation, solver=subjects.brief(solver))
    )


@pytest.mark.parametrize("solver", ["noisy-gd", "output", "psgd"])
def test_solvers_are_attacked_without_code_of_their_own(solver):
    subject = svm(solver)
    found = attacking.attacked(subject, 150, seed=5)
    assert not found.refuted
    assert 0.3 * found.claimed < found.exact.epsilon <= found.claimed
    assert attacking.attacked(subject, 250, seed=6, share=0.5).refuted


@pytest.mark.nightly
@pytest.mark.parametrize("relation", ["zero-out", "add-remove-one"])
def test_secret_samples_are_mixed_over(relation):
    """Subsampled descent: ratios integrate to one, and the promise, which rests on the secrecy, is kept."""
    subject = svm("noisy-sgd", relation)
    found = transcripts(subject.run, subject.first, subject.second, 200, seed=1)
    for losses in (found.first, -found.second):
        masses = np.exp(-losses)
        assert masses.mean() == pytest.approx(1.0, abs=6 * masses.std() / math.sqrt(200))
    assert np.std(found.first) > 0.05
    assert not attacking.attacked(subject, 100, seed=5).refuted


def test_the_same_people_are_sampled_where_the_first_record_is_missing():
    larger, smaller = Sample(np.array([0, 2, 4]), 5, 0.5, 0), Sample(np.array([1, 3]), 4, 0.5, 0)
    nobody, first = np.array([], dtype=int), np.array([0])
    assert Replayer((), [larger]).sampled(first, 4, 0.5).tolist() == [1, 3]
    assert Replayer((), [smaller]).sampled(first, 5, 0.5).tolist() == [0, 2, 4]
    assert Replayer((), [smaller]).sampled(nobody, 5, 0.5).tolist() == [2, 4]
    for included, those in ((True, [0, 2, 4]), (False, [2, 4])):
        assert _Forced((), [larger], included, False).sampled(nobody, 5, 0.5).tolist() == those
        assert _Forced((), [larger], included, False).sampled(nobody, 4, 0.5).tolist() == [1, 3]
        asked = _Forced((), [smaller], included, False)
        assert asked.sampled(nobody, 5, 0.5).tolist() == those
        assert asked.lacking
        assert _Forced((), [smaller], included, True).sampled(nobody, 4, 0.5).tolist() == [1, 3]


def test_samples_of_a_private_number_of_records_replay():
    subject = svm("noisy-sgd", "add-remove-one")
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.95 <= found.worst_input_ratio <= 1.0


def test_random_words_beside_those_of_samples_are_counted(monkeypatch):
    subject = svm("noisy-sgd", "add-remove-one")
    kind = type(subject.first.plan)
    genuine = kind._batch

    def wasteful(plan, records, entropy):
        entropy.words(records[0].n_samples)
        return genuine(plan, records, entropy)

    monkeypatch.setattr(kind, "_batch", wasteful)
    assert "words" in replay(subject.program, *subject.strained).failed_checks


def test_a_sample_is_heard_and_can_be_answered():
    class Everyone(Recorder):
        def sampled(self, indices, size, rate):
            return np.arange(size)

    with insecure_noise(0), recorded_by(Everyone()):
        assert poisson_sample(5, 0.25, fresh_entropy()).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="insecure_noise"), recorded_by(Everyone()):
        poisson_sample(5, 0.25, Entropy())


def test_secret_answers_are_not_shown_to_the_attacker():
    search = next(subject for subject in workflow.workflow() if subject.name == "PrivateSearchCV, tries")
    assert not search.composed
    assert search.log_density is not None


@pytest.mark.parametrize("relation", [Neighboring.REPLACE_ONE, Neighboring.ZERO_OUT])
def test_the_simplex_attains_its_range(relation):
    subject = subjects.linear_subject("PrivateSimplexRegressor", relation)
    found = replay(subject.program, *subject.strained)
    assert found.passed, str(found)
    assert 0.92 <= found.worst_input_ratio <= 1.0
