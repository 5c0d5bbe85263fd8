"""Suggests names that are similar to a misspelt one."""

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], most: int = 2, first: Iterable[str] = ()) -> str:
    """A "did you mean" question with the `known` names most similar to `name`; "" if none is.

    Args: most: how many names at most; first: names that come before the similar ones.
    """
    similar = difflib.get_close_matches(name, list(known), n=most)
    found = list(dict.fromkeys([*first, *similar]))[:most]
    return f"did you mean {' or '.join(found)}? " if found else ""
