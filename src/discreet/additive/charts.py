"""Shapes as charts: what each bin adds, above how many records it holds, both as released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from discreet.additive.shapes import Shape
from discreet.display import charts


def shape_chart(shapes: Sequence[Shape], outputs: Sequence[str]) -> Any:
    """One row per shape: steps or bars of its values, and bars of its counts."""
    charts.require()
    import altair

    alt: Any = altair

    rows = []
    for shape in shapes:
        table = shape.to_dict(outputs)
        names = [name for name in table if name.startswith("value")]
        records = [
            {
                "bin": label,
                "value": table[name][place],
                "count": max(0.0, table["count"][place]),
                "output": name.removeprefix("value").strip() or "all",
            }
            for place, label in enumerate(table["bin"])
            for name in names
        ]
        axis = alt.X("bin:N", sort=None, title=shape.name)
        base = alt.Chart(alt.Data(values=records)).properties(width=420)
        mark = (
            base.mark_line(interpolate="step", point=True)
            if shape.column.ordered
            else base.mark_point(filled=True)
        )
        color = alt.Color("output:N", title=None) if len(names) > 1 else alt.value("#3b6ea5")
        values = mark.encode(
            x=axis, y=alt.Y("value:Q", title="adds to the prediction"), color=color
        ).properties(height=160)
        counts = (
            base.mark_bar(color="#b0b7bf")
            .encode(x=axis, y=alt.Y("count:Q", title="records (noisy)", stack=None))
            .properties(height=50)
        )
        rows.append(alt.vconcat(values, counts))
    return alt.vconcat(*rows)
