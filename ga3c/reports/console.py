"""Prints tables in a terminal."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNLIMITED = 10_000  # columns if there is no terminal


def show(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    spare: Sequence[str] = (),
) -> None:
    """Print a table. All columns but the first are right-aligned.

    If the terminal is too narrow, columns in `spare` are dropped one by one until the table fits;
    if it still does not, cells are folded.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=UNLIMITED)
    columns = list(zip(headings, *rows, strict=True))
    for heading in spare:
        if sum(max(map(cell_len, cells)) + 3 for cells in columns) + 1 > console.width:
            columns = [cells for cells in columns if cells[0] != heading]
    table = Table(title=Text(title, "table.title"), title_justify="left")
    for index, (heading, *_) in enumerate(columns):
        table.add_column(heading, justify="right" if index else "left", overflow="fold")
    for row in zip(*(cells[1:] for cells in columns), strict=True):
        table.add_row(*map(Text, row))  # not parsed as markup: run names may contain brackets
    console.print(table)
