"""Prints tables in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

UNLIMITED = 10_000  # columns where no terminal limits them


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. All columns but the first are aligned to the right.

    Nothing is left out: a terminal that is too narrow folds the cells.
    """
    table = Table(title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=UNLIMITED)
    console.print(table)
