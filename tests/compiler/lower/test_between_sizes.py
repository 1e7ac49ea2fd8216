"""Lowering where sizes are symbols: what fits all examples keeps its symbols, and what does not is specialised."""

from __future__ import annotations

from collections.abc import Callable

from small_programs import memory_of, program_of, texts_of

from rnnops.compiler.lower.movements import between_sizes
from rnnops.compiler.lower.scan import Lowered
from rnnops.compiler.lower.statements import Layout
from rnnops.net.schema import Call
from rnnops.sizes import Size, Symbols


def lowered_between(lower: Callable[[Lowered, Call], None]) -> tuple[Lowered, Symbols]:
    """An op of which T and N are symbols, lowered by a function of ours."""
    symbols = Symbols([6, 4])
    program = program_of("y = Tanh(x)", x=(symbols.symbol(0), symbols.symbol(1), 3))
    found = memory_of(program)
    between_sizes(lower, found, program.calls[0])
    return found, symbols


def own_layout(layout: Callable[[int, int], Layout]) -> Callable[[Lowered, Call], None]:
    def lower(found: Lowered, call: Call) -> None:
        T, N, _ = call.shape(0)
        assert not isinstance(T, Size), "it is given plain numbers"
        found.own("y", call.output_types[0])
        found.views["z"] = type(found.views["y"])("y", layout(T, N))

    return lower


def test_products_of_sizes_stay_symbols() -> None:
    found, symbols = lowered_between(own_layout(lambda T, N: Layout(T * N + 1, (N, T), (3, 3 * N))))
    T, N = symbols.symbol(0), symbols.symbol(1)
    assert found.views["z"].layout == Layout(T * N + 1, (N, T), (3, 3 * N))
    assert isinstance(found.views["z"].layout.offset, Size)


def test_numbers_that_no_polynomial_describes_are_specialised() -> None:
    found, _ = lowered_between(own_layout(lambda T, N: Layout(T * T, (N, T), (3, 3 * N))))
    assert found.views["z"].layout == Layout(36, (4, 6), (3, 12))
    assert not isinstance(found.views["z"].layout.offset, Size)


def test_without_symbols_an_op_is_lowered_once() -> None:
    program, calls = program_of("y = Tanh(x)", x=(2, 3)), []
    found = memory_of(program)
    between_sizes(lambda _, call: calls.append(call), found, program.calls[0])
    assert calls == [program.calls[0]]
    assert texts_of(found) == []
