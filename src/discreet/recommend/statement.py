"""What a completion promises, in words."""

from __future__ import annotations

from discreet.privacy.statement import OTHER_RELEASES, TIME_AND_MEMORY, UNPREDICTABLE, PrivacyStatement
from discreet.recommend.plan import CompletionPlan
from discreet.recommend.ratings import Clicks, Scale


def of(plan: CompletionPlan, scale: Scale | Clicks, *, from_data: bool, secure: bool) -> PrivacyStatement:
    """The statement of a run; ``from_data`` says that the catalogue was not declared."""
    facts = plan.facts
    return PrivacyStatement(
        guarantee=plan.guarantee,
        event=plan.event,
        mechanism=(
            f"joint differential privacy, unit: user; method {plan.method.name!r}. The item side is released with "
            "Gaussian noise calibrated to a user's whole row; a user's predictions come from that release and the "
            "user's own row, and what other users see changes through the release only"
        ),
        theorem=f"{plan.method.theorem}; Gaussian composition; billboard lemma (Hsu et al., 2014)",
        noise=plan.noise,
        bounds={
            "users": float(facts.n_users),
            "items": float(facts.n_items),
            "half range of ratings": scale.half if isinstance(scale, Scale) else 1.0,
            "centred rating (half ranges)": facts.rating_clip,
            "residual row (half ranges)": facts.row_clip,
            "exact integers per user up to": float(facts.bound(2)),
        },
        assumptions=(
            "each person is one user (given by the user of this library): somebody with k accounts is protected only "
            "at k times epsilon",
            "THE CATALOGUE IS THE COLUMNS OR ITEMS OF THE DATA, treated as public"
            if from_data
            else "the catalogue was declared by the user",
            f"the number of users, {facts.n_users}, is public"
            if facts.guarantee.neighboring.size_is_public
            else f"{facts.n_users} is a public upper bound on the number of users",
            "the range of ratings, the rank and the other parameters were chosen without looking at the ratings",
            UNPREDICTABLE,
        ),
        not_covered=(
            "a user's own predictions and factors, if they are shown to anyone else",
            TIME_AND_MEMORY,
            "test errors computed on private ratings and published afterwards",
            OTHER_RELEASES,
        ),
        secure=secure,
    )
