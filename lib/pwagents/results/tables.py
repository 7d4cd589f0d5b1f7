"""Tables as files (CSV, HTML, LaTeX) and as what a notebook shows.

The CSV has the numbers; HTML and LaTeX have what a reader sees. Layout and escaping are great_tables';
product texts and other foreign strings in a table stay text. The same frame gives the same bytes at every
run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import pandas as pd

from pwagents.files import write_aside

_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the same of full width, too
_SIGNED = re.compile(r"[-+]?[\d.,]+%?( \N{PLUS-MINUS SIGN}[\d.,]+)?")  # no spreadsheet computes with these
MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Html:
    """HTML that a notebook displays.

    JupyterLab takes style sheets out of outputs of notebooks that it does not trust, those that papermill
    executed among them. So styles are inline, with a background of their own for the dark theme.
    """

    html: str = field(repr=False)  # a notebook would store it twice, the second time as plain text

    def _repr_html_(self) -> str:
        return self.html


def save_table(
    data: pd.DataFrame,
    name: str,
    *,
    title: str,
    note: str = "",
    output_dir: Path | str,
    shown: pd.DataFrame | None = None,
    formats: Mapping[str, str] | None = None,
    missing: str = MISSING,
) -> Html:
    """Write a table's files, and return what a notebook displays.

    The files are ``<output_dir>/tables/<name>.csv``, ``.html`` and ``.tex``.

    Args:
        data: the numbers. Of two levels of columns the upper one becomes a heading over its columns. A named
            index becomes the first columns, an unnamed one is dropped.
        shown: what HTML and LaTeX show when that is not ``data``, as with :func:`format_intervals`.
        formats: column (its lower level) -> Python format, such as ``".1f"``. Without one, whole numbers
            get thousands separators and others three decimals (zeros and ones stored as floats too: shares).
        missing: how a missing value or an empty text is shown.

    Raises:
        ValueError: see :func:`result_path`.
    """
    path = result_path(output_dir, "tables", name)
    data, shown = (
        frame.reset_index(drop=not any(label is not None for label in frame.index.names))
        for frame in (data, data if shown is None else shown)
    )
    write_aside(path.with_name(f"{name}.csv"), csv_text(data))
    table = _layout(shown, name, title, note, formats or {}, missing)
    # A page of its own has a style sheet; within a notebook styles are inline (see Html).
    write_aside(path.with_name(f"{name}.html"), table.as_raw_html(make_page=True))
    write_aside(path.with_name(f"{name}.tex"), table.as_latex())
    return Html(table.as_raw_html(inline_css=True))


def render_table(
    frame: pd.DataFrame, name: str, *, title: str, note: str = "", bold_rows: Sequence[int] = ()
) -> Html:
    """Lay out a table to be displayed, without files; ``bold_rows`` are positions."""
    from great_tables import loc, style

    table = _layout(frame, name, title, note, {}, MISSING)
    table = table.tab_style(style.text(weight="bold"), loc.body(rows=list(bold_rows))) if bold_rows else table
    return Html(table.as_raw_html(inline_css=True))


def result_path(output_dir: Path | str, kind: str, name: str) -> Path:
    """Return ``<output_dir>/<kind>/<name>``: a result's files without their suffix.

    Raises:
        ValueError: ``name`` would lie elsewhere, or there is no folder.
    """
    if not str(output_dir).strip():
        raise ValueError("output_dir is empty; expected a folder")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"{kind} name {name!r}; expected letters, digits, '_', '-' and '.' alone")
    return Path(output_dir) / kind / name


def banner(text: str) -> Html:
    """Make a line that nobody overlooks, for the top of a notebook."""
    look = "background:#fff3cd;color:#533f03;border:1px solid #d39e00;padding:8px 12px;font-weight:bold"
    return Html(f'<div role="note" style="{look}">{escape(text)}</div>')


def format_intervals(summary: pd.DataFrame) -> pd.Series:
    """Format the columns ``mean, low, high`` as "0.812 ±0.022".

    Without an interval there is only the mean. An interval that is not even shows its ends: "0.012 (0.000 to
    0.034)". If ``n_missing`` says that the mean is over part of its tasks, the text does, too: "0.900 ±0.050,
    7 not scored". A missing mean stays missing.
    """
    columns = summary.assign(n_missing=summary.get("n_missing", 0))[["mean", "low", "high", "n_missing"]]
    cells = []
    for mean, low, high, n_missing in columns.itertuples(index=False):
        text = None if pd.isna(mean) else f"{mean:z.3f}"
        if text and not pd.isna(low):
            even = abs((high - mean) - (mean - low)) <= 1e-5  # of six digits, as a CSV has them
            text += f" ±{(high - low) / 2:.3f}" if even else f" ({low:.3f} to {high:.3f})"
        cells.append(f"{text}, {n_missing:.0f} not scored" if text and n_missing > 0 else text)
    return pd.Series(cells, index=summary.index, dtype=object)


def format_differences(differences: pd.DataFrame, difference: str = "difference") -> pd.DataFrame:
    """Format paired differences, with ``low`` and ``high``, in one cell each.

    Counts get plain names. A type of task that is the same in all rows is left out.
    """
    cells = format_intervals(differences.rename(columns={difference: "mean"}))
    one_type = "task" in differences and differences["task"].nunique() == 1
    formatted = differences.assign(**{difference: cells}).drop(columns=["low", "high", *["task"] * one_type])
    names = {f"n_{unit}": unit for unit in ("tasks", "users", "seeds", "worlds")}
    return formatted.rename(columns=names | {"n_left_out": "tasks left out"})


def describe_difference(difference: float, low: float, high: float) -> str:
    """Describe a difference with its interval in a sentence, and say if the interval includes 0."""
    unclear = ", no clear difference" if low <= 0 <= high else ""
    return f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]{unclear}"


def heading(column: str | tuple[str, str]) -> str:
    """Return a column's heading in the CSV, after the one above it, if any."""
    return ": ".join(filter(None, _levels(column)))


def csv_text(frame: pd.DataFrame) -> str:
    """Format a frame as CSV, with 6 significant digits.

    Headings of two levels are joined as "upper: lower". Texts that a spreadsheet would take for a formula get
    the apostrophe that makes them texts there.
    """
    # Six digits are the same on machines whose sums differ in the last bits.
    cells = frame.map(lambda value: f"{value:.6g}" if _is_fraction(value) else _no_formula(value))
    cells.columns = [_no_formula(heading(column)) for column in frame.columns]
    return cells.to_csv(index=False, lineterminator="\n")


def _no_formula(value):
    """Put an apostrophe before a text that a spreadsheet takes for a formula."""
    if not isinstance(value, str) or _SIGNED.fullmatch(value):
        return value
    value = value.replace("\r\n", "\n").replace("\r", "\n")  # not quoted, and for some the end of a row
    return f"'{value}" if value.lstrip()[:1] in _FORMULA or value[:1] in ("\t", "\n") else value


def _levels(column: str | tuple[str, str]) -> tuple[str, str]:
    """Return the heading above a column ("" for none) and its own."""
    upper, lower = column if isinstance(column, tuple) else ("", column)
    return (str(upper), str(lower)) if lower else ("", str(upper))


def _is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_fraction(value) -> bool:
    return _is_number(value) and not isinstance(value, Integral) and not pd.isna(value)


def _layout(frame: pd.DataFrame, name: str, title: str, note: str, formats: Mapping[str, str], missing: str):
    from great_tables import GT

    # great_tables wants unique column names, which lower headings need not be: number the columns.
    labels, cells, numeric, groups = {}, {}, [], {}
    for i, (column, values) in enumerate(frame.items()):
        id_, (upper, lower) = f"column{i}", _levels(column)
        cells[id_] = _format_column(values, formats.get(lower), missing)
        # Headings with two braces would be great_tables' notation of units, in which nothing is escaped.
        upper, labels[id_] = (re.sub(r"\{(?=\{)", "{ ", text) for text in (upper, lower))
        if values.map(_is_number).all():
            numeric.append(id_)
        if upper:
            groups.setdefault(upper, []).append(id_)

    # An id begins with a letter: a style sheet cannot name an id that begins with a digit.
    table = GT(pd.DataFrame(cells, columns=list(labels), dtype=object), id=f"table-{name}")
    table = table.tab_header(title=title).cols_label(labels)
    table = table.cols_align("left").cols_align("right", numeric)
    for upper, members in groups.items():
        table = table.tab_spanner(upper, members)
    table = table.tab_options(table_font_size="14px", data_row_padding="4px")
    return table.tab_source_note(note) if note else table


def _format_column(column: pd.Series, spec: str | None, missing: str) -> list[str]:
    # A count with gaps is a float column in pandas, yet shown as a count. Zeros and ones alone are shares.
    fractions = [float(value) for value in column if _is_fraction(value)]
    if spec is None and max(fractions, default=0) > 1 and all(map(float.is_integer, fractions)):
        spec = ",.0f"
    cells = []
    for value in column:
        if pd.isna(value) or value == "":
            cells.append(missing)
        elif _is_number(value):
            cells.append(format(value, spec or (",d" if isinstance(value, Integral) else "z,.3f")))
        else:
            cells.append(str(value))
    return cells
