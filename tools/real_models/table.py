"""The table of files, `files.json`: where each one is, what it is, and what feeds have a meaning for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("files.json")


@dataclass(frozen=True)
class RealFile:
    """A file in a wheel.

    Args:
        package, version: of the wheel; file: its name in there, or `ARCHIVE::NAME` of one in an archive in there.
        bytes, sha256: its size and hash; source: whether the package has no wheel, so that its source has the file.
        what: a line for people; quantised: whether its products are of integers.
        feeds: input -> a rule of `tools.real_models.feeds`.
        sizes: open sizes that decide a branch, so that reading needs their numbers: those of the feeds.
        steps: name of the open size that counts steps, of a file whose states its next call takes.
        refused: a part of the message with which it is refused today; empty for a file that is read.
        tolerance: on outputs, of the largest value; tolerance_because: why it is another than that of most files.
        difference: step of the differences that gradients are compared with; smaller where slopes are steep or kinks
            near.
        sized: whether it is written again with the sizes of the feeds, as it gives other names to sizes that must be
            equal, or leaves open what must be a certain number.
    """

    package: str
    version: str
    file: str
    bytes: int
    sha256: str
    what: str
    quantised: bool
    feeds: dict[str, dict[str, Any]]
    sizes: dict[str, int] = field(default_factory=dict)
    steps: str = ""
    refused: str = ""
    tolerance: float = 1e-4
    tolerance_because: str = ""
    difference: float = 1e-5
    sized: bool = False
    source: bool = False

    @property
    def wheel(self) -> str:
        """The wheel as pip names it."""
        return f"{self.package}=={self.version}"

    @property
    def name(self) -> str:
        """Wheel and file, in words."""
        return f"{self.package} {self.version} {self.file}"


def read_table(path: Path = TABLE) -> list[RealFile]:
    """All files of the table; one that is `like` another has all else as that one."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    by_file = {entry["file"]: entry for entry in entries}
    return [RealFile(**{**by_file.get(entry.pop("like", ""), {}), **entry}) for entry in entries]
