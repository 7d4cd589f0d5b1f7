"""Tables as files (CSV, HTML, LaTeX) and as what a notebook shows.

The CSV holds the numbers, HTML and LaTeX what a reader sees. Layout and escaping are great_tables'; product
texts and other foreign strings in a table stay text. The same frame gives the same bytes at every run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.project import result_path, write_aside

_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the same of full width, too
_SIGNED = re.compile(r"[-+]?[\d.,]+%?( \N{PLUS-MINUS SIGN}[\d.,]+)?")  # no spreadsheet computes with these


def save_table(
    data: pd.DataFrame,
    name: str,
    *,
    title: str,
    note: str = "",
    output_dir: Path | str,
    shown: pd.DataFrame | None = None,
    formats: Mapping[str, str] | None = None,
    missing: str = "\N{EN DASH}",
):
    """Write ``<output_dir>/tables/<name>.csv``, ``.html`` and ``.tex``; return the table to be displayed.

    Args:
        data: the numbers, for the CSV (6 significant digits). Columns may have two levels, as from
            :func:`pwagents.evaluation.paper.below_paper`; the upper one becomes a heading over its columns. A
            named index becomes the first columns, an unnamed one is dropped.
        note: a line below the table.
        shown: what HTML and LaTeX show when that is not ``data``, as with :func:`interval_cells`.
        formats: column (its lower level) -> Python format, such as ``".1f"``. Without one, whole numbers
            get thousands separators and others three decimals (zeros and ones stored as floats too: shares).
        missing: how a missing value or an empty text is shown, for instance "not run".

    Returns:
        What a notebook displays as the last expression of a cell.
    """
    path = result_path(output_dir, "tables", name)
    write_aside(path.with_name(f"{name}.csv"), csv_text(_with_index(data)))
    table = _layout(_with_index(data if shown is None else shown), name, title, note, formats or {}, missing)
    write_aside(path.with_name(f"{name}.html"), table.as_raw_html(make_page=True))
    write_aside(path.with_name(f"{name}.tex"), table.as_latex())
    return Shown(table.as_raw_html(inline_css=True))


@dataclass(frozen=True)
class Shown:
    """HTML that a notebook displays.

    JupyterLab takes style sheets out of outputs of notebooks that it does not trust, those that papermill
    executed among them. So styles are inline, with a background of their own for the dark theme.
    """

    html: str = field(repr=False)  # a notebook would hold it twice, the second time as its plain text

    def _repr_html_(self) -> str:
        return self.html


def laid_out(
    frame: pd.DataFrame, name: str, *, title: str, note: str = "", bold_rows: Sequence[int] = ()
) -> Shown:
    """A table to be displayed alone, without files; ``bold_rows`` are positions."""
    from great_tables import loc, style

    table = _layout(frame, name, title, note, {}, "\N{EN DASH}")
    table = table.tab_style(style.text(weight="bold"), loc.body(rows=list(bold_rows))) if bold_rows else table
    return Shown(table.as_raw_html(inline_css=True))


def banner(text: str) -> Shown:
    """A line that nobody overlooks, at the top of a notebook."""
    look = "background:#fff3cd;color:#533f03;border:1px solid #d39e00;padding:8px 12px;font-weight:bold"
    return Shown(f'<div role="note" style="{look}">{escape(text)}</div>')


def interval_cells(summary: pd.DataFrame, decimals: int = 3) -> pd.Series:
    """ "0.812 ±0.022" from the columns ``mean, low, high``; only the mean where there is no interval.

    An interval that was cut at the end of its metric's range is told by its ends: "0.012 (0.000 to 0.034)".
    A missing mean stays missing.
    """

    def cell(mean: float, low: float, high: float) -> str | None:
        if pd.isna(mean):
            return None
        text = f"{mean:z.{decimals}f}"
        if pd.isna(low):
            return text
        if abs((high - mean) - (mean - low)) > 1e-9:
            return f"{text} ({low:.{decimals}f} to {high:.{decimals}f})"
        return f"{text} ±{(high - low) / 2:.{decimals}f}"

    cells = [cell(*row) for row in summary[["mean", "low", "high"]].itertuples(index=False)]
    return pd.Series(cells, index=summary.index, dtype=object)


def readable(differences: pd.DataFrame, difference: str = "difference") -> pd.DataFrame:
    """Paired differences to be read: each with its interval in one cell, counts under plain names.

    A type of task that is the same in all rows is left out.

    Args:
        difference: the column that holds the mean difference, beside its ``low`` and ``high``.
    """
    cells = interval_cells(differences.rename(columns={difference: "mean"}))
    aside = [
        "low",
        "high",
        *(["task"] if "task" in differences and differences["task"].nunique() == 1 else []),
    ]
    shown = differences.assign(**{difference: cells}).drop(columns=aside)
    return shown.rename(columns={"n_tasks": "tasks", "n_users": "users", "n_seeds": "seeds"})


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    named = any(name is not None for name in frame.index.names)
    return frame.reset_index() if named else frame.reset_index(drop=True)


def _levels(column: str | tuple[str, str]) -> tuple[str, str]:
    """The heading above a column ("" for none) and its own."""
    if not isinstance(column, tuple):
        return "", str(column)
    upper, lower = column
    return (str(upper), str(lower)) if lower else ("", str(upper))


def heading(column: str | tuple[str, str]) -> str:
    """What a column is called in the CSV: its own heading, after the one above it where there is one."""
    return ": ".join(filter(None, _levels(column)))


def csv_text(frame: pd.DataFrame) -> str:
    """The numbers with 6 significant digits; two-level headings joined as "upper: lower".

    Texts that a spreadsheet would take for a formula get the apostrophe that makes them texts there.
    """
    plain = frame.map(lambda value: f"{value:.6g}" if _is_fraction(value) else _no_formula(value))
    plain.columns = [_no_formula(heading(column)) for column in frame.columns]
    return plain.to_csv(index=False, lineterminator="\n")


def _no_formula(value):
    """``value``, with an apostrophe before a text that begins a formula and is more than a number."""
    if not isinstance(value, str) or _SIGNED.fullmatch(value):
        return value
    value = value.replace("\r\n", "\n").replace("\r", "\n")  # not quoted, and for some the end of a row
    return f"'{value}" if value.lstrip()[:1] in _FORMULA or value[:1] in ("\t", "\n") else value


def _is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_fraction(value) -> bool:
    return _is_number(value) and not isinstance(value, Integral) and not pd.isna(value)


def _layout(frame: pd.DataFrame, name: str, title: str, note: str, formats: Mapping[str, str], missing: str):
    from great_tables import GT

    # great_tables wants unique column names, which lower headings need not be: number the columns.
    ids = [f"column{i}" for i in range(frame.shape[1])]
    headings = {id_: _levels(column) for id_, column in zip(ids, frame.columns, strict=True)}
    cells, numeric, groups = {}, [], {}
    for id_, (_, column) in zip(ids, frame.items(), strict=True):
        upper, lower = headings[id_]
        cells[id_] = _column_cells(column, formats.get(lower), missing)
        if column.map(_is_number).all():
            numeric.append(id_)
        if upper:
            groups.setdefault(upper, []).append(id_)

    # A letter first: a style sheet cannot name an id that begins with a digit.
    table = GT(pd.DataFrame(cells, columns=ids, dtype=object), id=f"table-{name}")
    table = table.tab_header(title=title).cols_label({id_: lower for id_, (_, lower) in headings.items()})
    table = table.cols_align("left").cols_align("right", numeric)
    for upper, members in groups.items():
        table = table.tab_spanner(upper, members)
    table = table.tab_options(table_font_size="14px", data_row_padding="4px")
    return table.tab_source_note(note) if note else table


def _column_cells(column: pd.Series, spec: str | None, missing: str) -> list[str]:
    # A count with gaps is a float column in pandas, yet shown as a count. Zeros and ones alone are shares.
    fractions = [float(value) for value in column if _is_fraction(value)]
    if spec is None and max(fractions, default=0) > 1 and all(map(float.is_integer, fractions)):
        spec = ",.0f"
    return [_cell(value, spec, missing) for value in column]


def _cell(value, spec: str | None, missing: str) -> str:
    if pd.isna(value) or value == "":
        return missing
    if not _is_number(value):
        return str(value)
    return format(value, spec or (",d" if isinstance(value, Integral) else "z,.3f"))
