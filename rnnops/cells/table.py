"""The table of cells by name.

A cell's file enters its class, once, with `@register_cell`. It goes by its `default_name`, is made with
`(input size, hidden size, name=..., **options)`, takes vectors
`[N, D]` and gives vectors; its states may have any axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from rnnops.cells.sized import SizedCell
from rnnops.errors import NetError

Entered = TypeVar("Entered", bound=type[SizedCell])
_TABLE: dict[str, type[SizedCell]] = {}
CELLS: Mapping[str, type[SizedCell]] = MappingProxyType(_TABLE)
"""Classes of cells by name: what `ro.model.RNN("gru", 64)` and `rnnops train --cell gru` look up; read-only.

Example:
    >>> ro.cells.CELLS["gru"](3, 4, name="mine").get_state_names()
    ['mine/hidden_t']
"""


def register_cell(cell: Entered) -> Entered:
    """Enter a class of cells in the table `CELLS`, as a decorator.

    Args:
        cell: a subclass of `SizedCell` with a `default_name` of its own, by which it goes.

    Returns:
        The class itself.

    Raises:
        NetError: it is no such class, or its name is taken.

    Example:
        >>> @ro.cells.register_cell
        ... class Nothing(ro.cells.SizedCell):
        ...     default_name = "nothing"
        ...     def step(self, step, x_t, states, extra=()):
        ...         return states[0], list(states)
        >>> layer = ro.model.RNN("nothing", 4)
        >>> ro.cells.CELLS["nothing"] is Nothing
        True
    """
    if not (isinstance(cell, type) and issubclass(cell, SizedCell)):
        raise NetError("the table of cells holds classes of SizedCell", came=repr(cell))
    name = cell.__dict__.get("default_name")
    if not isinstance(name, str):
        raise NetError(f"{cell.__name__} has no default_name of its own", wanted='default_name = "..."')
    if _TABLE.setdefault(name, cell) is not cell:
        raise NetError(f"{cell.__name__}: this name of a cell is taken", wanted="another default_name", came=name)
    return cell
