"""A summary as one self-contained HTML page: no script, no request, no font from elsewhere."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from halfseen.base.catalogue import find_method
from halfseen.report import svg
from halfseen.report.circuit_tree import draw_tree
from halfseen.report.verdicts import impute_lines, judge_columns, sentence
from halfseen.vocabulary import Missingness

MAX_COLUMNS = 60

_HIDING = (
    " The probability that a value is missing is modelled too, as a function of the value itself, so "
    "values are not assumed to be missing at random."
)


def render(
    summary: dict[str, Any], comparison: dict[str, Any] | None = None, comparison_panel: Markup | None = None
) -> str:
    """Return the HTML page of a summary made by `halfseen.report.summarize.summarize`.

    Parameters
    ----------
    summary : dict
        The summary.
    comparison : dict, optional
        The summary of a comparison on hidden cells, and its panel, both made by `halfseen.report.compare`.
    comparison_panel : Markup, optional
        The panel.

    Returns
    -------
    str
        One page; every name and value of the table is escaped.
    """
    name, assumption, hiding = _explain(summary["method"])
    verdicts = judge_columns(summary)
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            summary=summary,
            lines=impute_lines(summary, verdicts),
            verdicts=verdicts[:MAX_COLUMNS],
            n_verdicts=len(verdicts),
            comparison=comparison,
            comparison_panel=comparison_panel,
            method=name,
            assumption=assumption,
            hiding=hiding,
            fills=[_describe(fill, summary) for fill in summary["fills"]],
            patterns=Markup(svg.pattern_grid(summary["patterns"]))
            if summary["patterns"]["columns"]
            else None,
            few=any(fill.get("cells") for fill in summary["fills"]),
            many=any(fill["chart"] and not fill.get("cells") for fill in summary["fills"]),
            rug=any(fill["chart"] == "histogram" and not fill["cells"] for fill in summary["fills"]),
            strips=_strips(summary["blocks"]),
            tree=_tree(summary.get("structure")),
        )
    )


def _explain(method: str) -> tuple[str, str, bool]:
    """Return the name of a method, what it does, and whether it models the missingness.

    A model of missingness other than the default comes after a colon.
    """
    base, _, assumed = method.partition(":")
    entry = find_method(base)
    default = entry.missingness[0]
    label = f"{entry.label} with self-masking" if assumed and default == Missingness.MAR else entry.label
    modelled = (assumed or default) != Missingness.MAR
    return label, entry.description + (_HIDING if modelled else ""), modelled


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("halfseen.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": svg.number,
        "percent": svg.percent,
        "count": _count,
        "duration": _duration,
        "sentence": lambda words: sentence(words) if words else "",
    }
    return environment


def _count(value: int) -> str:
    return svg.number(value, 16)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _tree(structure: dict[str, Any] | None) -> Markup | None:
    return Markup(draw_tree(structure)) if structure and structure["drawn"] else None


def _strips(blocks: dict[str, Any]) -> list[tuple[str, Markup]]:
    return [
        (name, Markup(svg.strip(shares, blocks["edges"], name)))
        for name, shares in zip(blocks["columns"], blocks["shares"], strict=True)
    ]


def _describe(fill: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """Return a fill with its picture and the facts below it."""
    picture, facts = None, []
    if fill["chart"] == "histogram":
        picture = Markup(svg.histogram(fill))
        facts = _number_facts(fill, summary["level"], summary.get("weights"))
    elif fill["chart"] == "levels":
        picture = Markup(svg.level_bars(fill))
        if "top_probability" in fill:
            facts = [("Mean probability of the chosen level", svg.percent(fill["top_probability"]))]
    return {**fill, "picture": picture, "facts": facts}


def _number_facts(fill: dict[str, Any], level: float, weights: str | None) -> list[tuple[str, str]]:
    scale = fill["observed_sd"]
    facts = []
    if not fill["time"]:
        weighted = "" if weights is None else f", weighted by {weights}"
        facts = [
            (
                f"Observed mean (sd){weighted}",
                f"{svg.number(fill['observed_mean'], 4)} ({svg.number(scale)})",
            ),
            (
                f"Imputed mean (sd){weighted}",
                f"{svg.number(fill['imputed_mean'], 4)} ({svg.number(fill['imputed_sd'])})",
            ),
        ]
    if fill.get("relative_width") is not None:
        width = "" if fill["time"] else f"{svg.number(fill['width'])} = "
        name = f"{svg.percent(level)} interval, median width"
        facts.append((name, f"{width}{svg.number(fill['relative_width'])} sd"))
    return facts
