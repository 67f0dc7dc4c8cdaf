"""Principal components: what one row can do to a product, limits without noise, the scikit-learn contract."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from discreet import PrivateLogisticRegression, PrivatePCA, card
from discreet.audit.replay import replay
from discreet.audit.trace import fitting
from discreet.mechanisms.samplers.entropy import insecure_noise
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring
from discreet.records.arrays import ArrayRecords
from discreet.records.bounds import Bounds
from discreet.solvers.components import (
    ComponentsPlan,
    ComponentsProblem,
    NoisyComponents,
    product_rounding,
    products,
)

RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
SPREADS = np.array([0.4, 0.2, 0.1, 0.03, 0.02, 0.01])
X = RNG.normal(size=(4000, 6)) * SPREADS @ BASIS.T + 0.1
METHODS = ("svd", "power", "oja")


@pytest.mark.lemma("principal-components.md#theorem-2")
@pytest.mark.parametrize("relation", list(Neighboring))
def test_products_of_neighbors_are_within_the_declared_distance_and_attain_it(relation):
    problem = ComponentsProblem(4, 6, 2.0, 2, False)
    plan = NoisyComponents("power").plan(problem, Guarantee(1.0, 1e-6, relation))
    declared = plan.product.sensitivity.value
    block, other = np.eye(6)[:, :2], 2.0 * np.eye(6)[1]
    first = 2.0 * np.eye(6)[0]
    second = np.zeros(6) if relation.contributions == 1 else other
    worst = np.linalg.norm(np.outer(first, first) @ block - np.outer(second, second) @ block)
    assert worst <= declared <= worst * (1 + 1e-9)
    for _ in range(300):
        v, u = RNG.normal(size=(2, 6))
        v, u = 2 * v / np.linalg.norm(v), 2 * u / np.linalg.norm(u) * (relation.contributions == 2)
        basis = np.linalg.qr(RNG.normal(size=(6, 2)))[0]
        assert np.linalg.norm((np.outer(v, v) - np.outer(u, u)) @ basis) <= declared


def test_computed_products_are_within_their_rounding():
    rows = RNG.normal(size=(500, 40))
    block = np.ascontiguousarray(np.linalg.qr(RNG.normal(size=(40, 3)))[0])
    for data in (rows, sp.csr_array(rows)):
        records = ArrayRecords(data, np.ones(500), Bounds(1.0, intercept=False))
        exact = rows.astype(np.longdouble) * records.scales[:, None]
        off = products(records, block) - exact.T @ (exact @ block)
        assert np.linalg.norm(off.astype(float)) <= product_rounding(500, 40, 3, 1.0) < 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [True, False])
def test_the_price_is_the_promise(method, center):
    plan = PrivatePCA(1.0, 1e-6, n_components=2, method=method, center=center).plan(1000, 5)
    price = accountants.delta(plan.event, 1.0, Neighboring.REPLACE_ONE)
    assert 0.99e-6 <= price <= 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_it_is_the_usual_analysis(method):
    exact = PCA(2).fit(X)
    iterations = NoisyComponents(method, n_iterations=30)
    model = PrivatePCA(1e5, 1e-6, n_components=2, method=iterations, feature_bound=3.0).fit(X)
    assert np.abs(np.sum(model.components_ * exact.components_, axis=1)) == pytest.approx(1.0, abs=1e-3)
    assert model.components_ @ model.components_.T == pytest.approx(np.eye(2), abs=1e-12)
    assert model.explained_variance_ == pytest.approx(exact.explained_variance_, rel=0.02)
    assert model.mean_ == pytest.approx(exact.mean_, abs=1e-3)
    assert np.abs(model.transform(X)) == pytest.approx(np.abs(exact.transform(X)), abs=0.02)
    if method == "svd":
        assert model.explained_variance_ratio_ == pytest.approx(exact.explained_variance_ratio_, rel=0.02)
    else:
        assert model.explained_variance_ratio_.size == 0


def test_low_rank_approximation_is_that_of_the_singular_vectors():
    left, values, right = np.linalg.svd(X, full_matrices=False)
    best = (left[:, :2] * values[:2]) @ right[:2]
    model = PrivatePCA(1e5, 1e-6, n_components=2, center=False, feature_bound=3.0).fit(X)
    assert model.inverse_transform(model.transform(X)) == pytest.approx(best, abs=1e-2)
    assert not model.mean_.any()


@pytest.mark.parametrize("method", METHODS)
def test_at_a_usual_epsilon_the_first_directions_are_found(method):
    model = PrivatePCA(1.0, 1e-6, n_components=2, method=method).fit(X)
    captured = np.var(X @ model.components_.T, axis=0).sum() / np.sum(SPREADS[:2] ** 2)
    assert captured > 0.9
    assert model.explained_variance_[0] == pytest.approx(SPREADS[0] ** 2, rel=0.15)


def test_directions_that_noise_could_have_made_explain_nothing():
    model = PrivatePCA(0.1, 1e-6, n_components=6).fit(X[:300])
    assert not model.explained_variance_.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 0.0}, "delta must be greater than 0"),
        ({"n_components": 7}, "n_components must be at most"),
        ({"method": "qr"}, "method"),
        ({"feature_bound": 0.0}, "feature_bound"),
        ({"neighboring": "add-remove-one", "n_samples": 4000}, "center must be False"),
        ({"method": NoisyComponents("oja", learning_rate=-1.0)}, "learning_rate"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrivatePCA(**{"delta": 1e-6, **settings}).fit(X)


def test_a_private_number_of_rows():
    model = PrivatePCA(
        5.0, 1e-6, neighboring="add-remove-one", n_samples=5000, center=False, n_components=1
    ).fit(X)
    direction = np.linalg.svd(X)[2][0]
    assert abs(model.components_[0] @ direction) > 0.95


def test_people_with_several_rows_and_null_rows():
    spoiled = X.copy()
    spoiled[3] = np.nan
    ids = np.arange(4000) // 2
    with insecure_noise(1):
        model = PrivatePCA(2.0, 1e-6, max_rows_per_group=2, bad_rows="null").fit(spoiled, groups=ids)
    assert model.privacy_.guarantee.unit == "user"
    spoiled[3] = 0.0  # a row of zeros adds nothing either
    with insecure_noise(1):
        other = PrivatePCA(2.0, 1e-6, max_rows_per_group=2, bad_rows="null").fit(spoiled, groups=ids)
    assert other.components_ == pytest.approx(model.components_, abs=1e-12)


def test_it_is_a_step_of_a_pipeline_and_a_file(tmp_path):
    model = PrivatePCA(1.0, 1e-6, n_components=2).fit(X)
    card.save(model, tmp_path / "pca.json")
    again = card.load(tmp_path / "pca.json")
    assert np.array_equal(again.transform(X), model.transform(X))
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]
    pipeline = make_pipeline(PrivatePCA(1.0, 1e-6), PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1]))
    assert (
        pipeline.fit(X, (X @ BASIS[:, 0] > 0.0).astype(int)).score(X, (X @ BASIS[:, 0] > 0.0).astype(int))
        > 0.8
    )


PAIR = np.full((40, 2), 0.1), np.full((40, 2), 0.1)
PAIR[0][7], PAIR[1][7] = [1.0, 0.0], [0.0, 1.0]


@pytest.mark.lemma("principal-components.md#theorem-1")
@pytest.mark.parametrize("method", METHODS)
def test_a_replay_finds_what_is_declared(method):
    model = PrivatePCA(1.0, 1e-2, n_components=2, method=method, center=False, bad_rows="null")
    found = replay(lambda rows: fitting(model)((rows, None)), *PAIR)
    assert found.passed, str(found)
    assert 0.99 <= found.worst_ratio <= 1.0


def test_a_twin_with_half_the_noise_is_caught(monkeypatch):
    model = PrivatePCA(1.0, 1e-2, n_components=2, method="power", center=False, bad_rows="null")

    def halved(self, records, entropy, progress=None):
        twin = ComponentsPlan(
            self.problem, self.record_guarantee, self.method, self.n_iterations, self.unit / 2
        )
        return twin._by_products(records[0], entropy)

    monkeypatch.setattr(ComponentsPlan, "run", halved)
    assert not replay(lambda rows: fitting(model)((rows, None)), *PAIR).passed
