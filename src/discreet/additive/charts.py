"""Shapes as charts: what each bin adds, above how many records it holds, both as released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from discreet.additive.shapes import Shape
from discreet.display import charts

_HEIGHT, _WIDTH = 190, 420
_LEVEL = 30  # letters of all categories that fit below a chart side by side


def shape_chart(shapes: Sequence[Shape], outputs: Sequence[str]) -> Any:
    """One chart of Altair below the other."""
    charts.require()
    import altair

    alt: Any = altair
    return alt.vconcat(*(_layered(alt, shape, outputs).properties(width=_WIDTH) for shape in shapes))


def shape_spec(shape: Shape, outputs: Sequence[str]) -> charts.Spec:
    """The chart of one shape, for a page."""
    charts.require()
    import altair

    return dict(_layered(altair, shape, outputs).to_dict())


def _layered(alt: Any, shape: Shape, outputs: Sequence[str]) -> Any:
    """Steps or points of the values in front of gray bars of the counts."""
    table = shape.to_dict(outputs)
    names = [name for name in table if name.startswith("value")]
    lower = table.get("lower", [])
    ranged = shape.column.ordered and all(
        math.isfinite(end) for end in (*lower[: shape.bins.n_bins], table["upper"][shape.bins.n_bins - 1])
    )
    bins = shape.bins.n_bins if ranged else len(table["bin"])
    places = [
        (lower[place], table["upper"][place]) if ranged else (table["bin"][place], "")
        for place in range(bins)
    ]
    counts = [
        {"from": low, "to": high, "rows": max(0.0, count)}
        for (low, high), count in zip(places, table["count"], strict=False)
    ]
    values = [
        {"from": low, "value": table[name][place], "output": name.removeprefix("value").strip() or "all"}
        for name in names
        for place, (low, _) in enumerate(places)
    ]
    if ranged:  # the last step needs an end
        values += [{**one, "from": places[-1][1]} for one in values if one["from"] == places[-1][0]]
    kind, axis = ("Q", {"scale": alt.Scale(zero=False, nice=False)}) if ranged else ("N", {"sort": None})
    if not ranged and sum(len(str(low)) for low, _ in places) <= _LEVEL:
        axis["axis"] = alt.Axis(labelAngle=0)
    x = alt.X(f"from:{kind}", title=shape.name, **axis)
    color = alt.Color("output:N", title=None) if len(names) > 1 else alt.value(charts.COLORS[0])
    rows = alt.Y("rows:Q", title="rows (noisy)", axis=alt.Axis(grid=False, orient="right"))
    gray = alt.Chart(alt.Data(values=counts))
    gray = gray.mark_rect(color="#80808059") if ranged else gray.mark_bar(color="#80808059")
    gray = gray.encode(x=x, y=rows, **({"x2": "to", "y2": alt.datum(0)} if ranged else {}))
    front = alt.Chart(alt.Data(values=values))
    front = (
        front.mark_line(interpolate="step-after", strokeWidth=3)
        if ranged
        else front.mark_point(filled=True, size=90, opacity=1)
    )
    adds = alt.Y(
        "value:Q", title="adds to the prediction", axis=alt.Axis(orient="left"), scale=alt.Scale(padding=8)
    )
    front = front.encode(x=x, y=adds, color=color)
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(strokeDash=[4, 3], color="#808080")
    front = alt.layer(zero.encode(y=alt.datum(0, title="adds to the prediction")), front)
    return alt.layer(gray, front).resolve_scale(y="independent").properties(height=_HEIGHT)
