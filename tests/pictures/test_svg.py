"""SVG as text: widths of texts, what is cut, what is escaped, documents that parse."""

from __future__ import annotations

from xml.etree import ElementTree

from rnnops.svg import COLOURS, LETTER, cut, document, group, legend, legend_size, rect, text, text_width


def test_wide_letters_count_for_two_and_marks_for_none() -> None:
    for said, letters in (("ab", 2), ("状a", 3), ("a\u0308", 1), ("", 0)):
        assert text_width(said, 10) == LETTER * 10 * letters


def test_texts_are_cut_by_their_width() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 5) == "abcd…"
    assert cut("ab cdef", 4) == "ab…"
    assert cut("状態状態", 5) == "状態…"
    assert cut("", 0) == ""
    for letters in range(1, 20):
        assert text_width(cut("a状b態c長d", letters), 10) <= letters * 10 * LETTER + 1e-9


def test_foreign_text_is_escaped_everywhere() -> None:
    name = "<a> & \"b\" 'c'"
    root = ElementTree.fromstring(document(10, 10, name, [group([text(0, 0, name), rect(0, 0, 1, 1, "op")], name)]))
    found = [one.text for one in root.iter() if one.tag.endswith(("text", "title"))]
    assert found == [name, name, name]
    assert root.get("aria-label") == name


def test_other_letters_are_fitted() -> None:
    assert "textLength" not in text(0, 0, "plain")
    assert 'textLength="26.8"' in text(0, 0, "状態")


def test_legends_go_on_in_another_row() -> None:
    named = [(colour, colour) for colour in COLOURS]
    (wide, low), (narrow, high) = legend_size(named, 2000), legend_size(named, 200)
    assert narrow <= 200 < wide <= 2000
    assert low < high
    assert legend(named, 0, 0, 200).count("<rect") == len(named)
    assert legend_size([], 100)[1] == 0
