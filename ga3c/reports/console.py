"""Prints tables in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. All columns but the first are aligned to the right."""
    table = Table(title=title, title_justify="left")
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=True).print(table)
