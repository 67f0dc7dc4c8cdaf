"""One noisy vector gets the whole budget, and no more."""

from dataclasses import dataclass

import pytest

from discreet.mechanisms.noisy_vector import NoisyVectorPlan
from discreet.privacy.accounting import accountants
from discreet.privacy.guarantee import Guarantee, Neighboring, Sensitivity


@dataclass(frozen=True)
class Counts(NoisyVectorPlan):
    size = 5

    @property
    def sensitivity(self):
        return Sensitivity(2.0, norm=1.0 if self.guarantee.delta == 0 else 2.0)


@pytest.mark.parametrize("neighboring", list(Neighboring))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_price_is_the_budget(epsilon, neighboring):
    pure = Counts(Guarantee(epsilon, 0.0, neighboring))
    assert 0.99 * epsilon <= accountants.epsilon(pure.event, 0.0, neighboring) <= epsilon
    noisy = Counts(Guarantee(epsilon, 1e-6, neighboring))
    assert 0.99e-6 <= accountants.delta(noisy.event, epsilon, neighboring) <= 1e-6
    assert pure.stddev == pytest.approx(2**0.5 * 2.0 / epsilon, rel=1e-6)
    assert noisy.stddev == pytest.approx(noisy.release.stddev, rel=1e-6)
