"""Pooled estimates as text, as LaTeX and as HTML."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfseen.pooling.rules import Pooled

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
    }
)


def tidy_columns(pooled: "Pooled", level: float) -> dict[str, Any]:
    """Returns the columns of the tidy frame, by name."""
    low, high = pooled.interval(level)
    return {
        "term": list(pooled.names),
        "estimate": pooled.estimate,
        "std_error": pooled.std_error,
        "statistic": pooled.statistic,
        "df": pooled.df,
        "p_value": pooled.p_value,
        "conf_low": low,
        "conf_high": high,
        "riv": pooled.riv,
        "fmi": pooled.fmi,
    }


def as_text(pooled: "Pooled") -> str:
    """Returns a table for terminals."""
    low, high = pooled.interval()
    width = max(len("coefficient"), *(len(name) for name in pooled.names))
    lines = [
        f"{'coefficient':{width}} {'estimate':>10} {'std error':>10} {'2.5%':>10} {'97.5%':>10}"
        f" {'p':>8} {'df':>7} {'riv':>6} {'fmi':>5}"
    ]
    rows = zip(
        pooled.names, pooled.estimate, pooled.std_error, low, high, pooled.p_value, pooled.df, pooled.riv,
        pooled.fmi, strict=True,
    )  # fmt: skip
    for name, estimate, error, lo, hi, p, df, riv, fmi in rows:
        lines.append(
            f"{name:{width}} {estimate:10.4g} {error:10.4g} {lo:10.4g} {hi:10.4g}"
            f" {p:8.3g} {df:7.1f} {riv:6.3g} {fmi:5.2f}"
        )
    return "\n".join([*lines, caption(pooled)])


def caption(pooled: "Pooled") -> str:
    """Returns how the estimates were pooled, as a line of text."""
    scale = "" if pooled.transformation is None else f" on the scale {pooled.transformation.name}"
    return f"pooled over {pooled.n_draws} completed tables by Rubin's rules{scale}"


def as_latex(pooled: "Pooled", level: float, digits: int) -> str:
    """Returns a tabular environment that needs no package."""
    lines = [r"\begin{tabular}{lrrrrrrr}", r"\hline"]
    header, rows = _cells(pooled, level, digits)
    lines.append(" & ".join(cell.translate(_LATEX) for cell in header) + r" \\ \hline")
    lines += [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in rows]
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def as_html(pooled: "Pooled", level: float, digits: int) -> str:
    """Returns a table element."""
    header, rows = _cells(pooled, level, digits)
    body = "".join("<tr>" + "".join(_html_cells(row)) + "</tr>" for row in rows)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    return (
        f"<table><caption>{escape(caption(pooled))}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _html_cells(row: Sequence[str]) -> list[str]:
    first, *others = (escape(cell) for cell in row)
    return [f'<th scope="row">{first}</th>', *(f"<td>{cell}</td>" for cell in others)]


def _cells(pooled: "Pooled", level: float, digits: int) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a printed table, as texts."""
    if digits < 1:
        raise ValueError(f"digits must be at least 1, got {digits!r}.")
    low, high = pooled.interval(level)
    header = ["term", "estimate", "std. error", f"{level:.0%} low", f"{level:.0%} high", "p", "df", "fmi"]
    numbers = zip(pooled.estimate, pooled.std_error, low, high, strict=True)
    rows = []
    for j, four in enumerate(numbers):
        row = [pooled.names[j], *(f"{number:.{digits}g}" for number in four)]
        p = float(pooled.p_value[j])
        row.append("<0.001" if p < 0.001 else f"{p:.3f}")
        rows.append([*row, f"{pooled.df[j]:.1f}", f"{pooled.fmi[j]:.2f}"])
    return header, rows
