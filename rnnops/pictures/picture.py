"""Pictures: SVG that browsers and notebooks show, and text that says the same."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from rnnops.atomic_file import replaced
from rnnops.html import folded, preformatted, scrolled


class Picture(ABC):
    """Base of pictures; `print` says what they show, and notebooks show them."""

    @property
    @abstractmethod
    def svg(self) -> str:
        """The picture, as a document of its own."""

    @property
    def text(self) -> str:
        """The same in words."""
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file.

        Args:
            path: of the file, which is replaced as a whole.

        Raises:
            OSError: where that fails; an old file stays then.
        """
        with replaced(path) as file:
            file.write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return scrolled(self.svg) + self._below() + folded("in words", preformatted(self.text))

    def _below(self) -> str:
        """What a page has below the picture."""
        return ""
