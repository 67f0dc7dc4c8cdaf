"""Draw the picture of the README: what privacy costs in accuracy, and what it buys, on a cohort that nobody is in.

    python docs/_ext/picture.py     # writes docs/_static/tradeoff.svg

The accuracies are means over fits, on held-out invented people; the belief is a formula.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from discreet import PrivateLogisticRegression
from discreet.display.charts import svg
from discreet.privacy.page import posterior
from discreet.tables.cohort import COHORT_SCHEMA, make_cohort

PICTURE = Path(__file__).parents[1] / "_static" / "tradeoff.svg"
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
FITS = 5
PEOPLE = 50_000
WIDTH = 520  # letters can still be read on a phone

MODEL, GUESS = "accuracy of the private model", "how sure a 50:50 guess about one person can become"


def measured(people: int = PEOPLE, fits: int = FITS) -> tuple[list[dict[str, Any]], float]:
    """Points of both curves, and the accuracy without privacy."""
    rows, labels = COHORT_SCHEMA.encode(make_cohort(people))
    train = len(rows) * 4 // 5
    plain = LogisticRegression(max_iter=2000).fit(rows[:train], labels[:train])
    points = []
    for epsilon in EPSILONS:
        scores = [
            PrivateLogisticRegression(
                epsilon, 1e-6, classes=["no", "yes"], feature_bound=COHORT_SCHEMA.feature_bound()
            )
            .fit(rows[:train], labels[:train])
            .score(rows[train:], labels[train:])
            for _ in range(fits)
        ]
        points.append({"epsilon": epsilon, "share": float(np.mean(scores)), "what": MODEL})
        points.append({"epsilon": epsilon, "share": posterior(0.5, epsilon), "what": GUESS})
    return points, float(plain.score(rows[train:], labels[train:]))


def drawn(points: list[dict[str, Any]], plain: float) -> dict[str, Any]:
    """The specification of the picture."""
    import altair as alt

    colors = alt.Scale(domain=[MODEL, GUESS], range=["#0072B2", "#D55E00"])
    axis = alt.Axis(values=list(EPSILONS), format="~g")
    scale = alt.Scale(type="log", nice=False, domain=[EPSILONS[0], EPSILONS[-1]])
    shares = alt.Y("share:Q", title=None, scale=alt.Scale(domain=[0.5, 1.0]), axis=alt.Axis(format="%"))
    lines = (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=alt.OverlayMarkDef(size=70, filled=True), strokeWidth=3)
        .encode(
            x=alt.X("epsilon:Q", title="epsilon: smaller is more private", scale=scale, axis=axis),
            y=shares,
            color=alt.Color("what:N", title=None, scale=colors),
        )
    )
    without = [{"epsilon": EPSILONS[0], "share": plain, "text": f"without privacy: {plain:.1%}"}]
    rule = alt.Chart(alt.Data(values=without)).mark_rule(strokeDash=[5, 4], color="#777").encode(y=shares)
    label = (
        alt.Chart(alt.Data(values=without))
        .mark_text(align="left", dy=-8, dx=6, color="#555", fontSize=12)
        .encode(x="epsilon:Q", y=shares, text="text:N")
    )
    return dict((rule + label + lines).properties(height=240).to_dict())


def main() -> None:
    """Measure and write."""
    warnings.simplefilter("ignore")
    points, plain = measured()
    for point in points:
        print(f"{point['epsilon']:g}  {point['share']:.4f}  {point['what']}")
    print(f"without privacy: {plain:.4f}")
    PICTURE.write_text(svg(drawn(points, plain), WIDTH, "", background="white"), encoding="utf-8")


if __name__ == "__main__":
    main()
