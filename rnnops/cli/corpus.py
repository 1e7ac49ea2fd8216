"""The text of a training run: where it comes from, its alphabet, its training part and its held-out part.

Without paths the text is the Python standard library's own sources, which every machine with Python has. Files are
decoded as UTF-8 (bytes that are none become U+FFFD), newlines become line feeds, and files follow each other in a fixed
order.

Held-out part: the text is cut into 1 to 40 equal blocks (one per 20,000 characters), and the middle twentieth of each
block is held out. Alphabet: chosen from the training part alone, the at most 127 most frequent characters (of equally
frequent ones the lower code point) that make up at least one in 100,000 characters and occur at least twice; all other
characters become the replacement symbol U+FFFD, which is always in the alphabet. Indices follow code points.

Limits: bits per character are bits per symbol of this alphabet; the joints between chunks are scored like any text.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from rnnops.errors import RnnopsError

DEFAULT_BYTES = 8_000_000
MIN_CHARACTERS = 2_000
HELD_OUT_PART = 20  # one character in so many is held out
BLOCK_CHARACTERS, MAX_BLOCKS = 20_000, 40
ALPHABET_SIZE, RARE_PART = 128, 100_000
REPLACEMENT = "\ufffd"
CODE_POINTS = 0x110000

TEXT_SUFFIXES = frozenset(
    (".c", ".cpp", ".go", ".h", ".html", ".java", ".js", ".md", ".py", ".rs", ".rst", ".sh", ".tex", ".ts", ".txt")
)
# Tests, generated tables and texts, and packages that only some installations have.
SKIPPED_PACKAGES = frozenset(
    ("distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "turtledemo")
)

Indices = npt.NDArray[np.uint8]


class CorpusError(RnnopsError):
    """A text cannot be found, read, or used for training."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as read-only indices into its alphabet.

    Args:
        train, held_out: [characters] uint8; no character is in both.
        alphabet: the characters by index, in the order of their code points.
        source: where the text comes from, for people.
        sha256: of the whole text in UTF-8, before rare characters are replaced.
    """

    train: Indices
    held_out: Indices
    alphabet: str
    source: str
    sha256: str

    def encode(self, text: str) -> Indices:
        """Return the indices of `text` in this alphabet."""
        return encode(text, self.alphabet)

    def decode(self, indices: npt.ArrayLike) -> str:
        """Return the characters of `indices`."""
        return decode(indices, self.alphabet)


def load_text(paths: Sequence[Path] = (), max_bytes: int | None = DEFAULT_BYTES) -> Corpus:
    """Read files, directories of text files or, without paths, Python's own sources; at most `max_bytes` of them."""
    if max_bytes is not None and max_bytes < 1:
        raise CorpusError("the size limit of a text is not positive", wanted="at least 1 byte", came=max_bytes)
    files = _given_files(paths) if paths else standard_library_files()
    text, used, cut = _join(files, max_bytes)
    origin = ", ".join(str(path) for path in paths) or f"Python {platform.python_version()} standard library"
    files_read = f"{used} file" if used == 1 else f"{used} files"
    return corpus_of(text, f"{origin} ({files_read}{f', cut at {max_bytes} bytes' if cut else ''})")


def corpus_of(text: str, source: str = "text") -> Corpus:
    """Choose the alphabet of `text` and split it into training and held-out characters."""
    if len(text) < MIN_CHARACTERS:
        raise CorpusError(
            f"the text ({source}) is too short",
            wanted=f"at least {MIN_CHARACTERS} characters",
            came=len(text),
            hint="Give more or longer files.",
        )
    held_out = held_out_mask(len(text))
    alphabet = choose_alphabet(_code_points(text)[~held_out])
    indices = encode(text, alphabet)
    parts = indices[~held_out], indices[held_out]
    for part in parts:
        part.setflags(write=False)
    return Corpus(*parts, alphabet, source, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def held_out_mask(length: int) -> npt.NDArray[np.bool_]:
    """Mark the middle twentieth of each of 1 to 40 equal blocks."""
    mask = np.zeros(length, np.bool_)
    blocks = min(MAX_BLOCKS, max(1, length // BLOCK_CHARACTERS))
    for block in range(blocks):
        start, stop = length * block // blocks, length * (block + 1) // blocks
        size = (stop - start) // HELD_OUT_PART
        first = (start + stop - size) // 2
        mask[first : first + size] = True
    return mask


def choose_alphabet(code_points: npt.NDArray[np.uint32]) -> str:
    """Return the frequent characters and the replacement symbol, sorted by code point."""
    counts = np.bincount(code_points, minlength=CODE_POINTS)
    counts[ord(REPLACEMENT)] = 0  # it has its own place
    most_frequent = np.argsort(-counts, kind="stable")[: ALPHABET_SIZE - 1]
    frequent = most_frequent[counts[most_frequent] >= max(2, -(-len(code_points) // RARE_PART))]
    return "".join(sorted({chr(point) for point in frequent} | {REPLACEMENT}))


def encode(text: str, alphabet: str) -> Indices:
    """Return the index of each character; one that is not in the alphabet gets the replacement symbol's."""
    table = np.full(CODE_POINTS, alphabet.index(REPLACEMENT), np.uint8)
    table[_code_points(alphabet)] = np.arange(len(alphabet))
    return table[_code_points(text)]


def decode(indices: npt.ArrayLike, alphabet: str) -> str:
    """Return the characters of a flat array of indices."""
    flat = np.asarray(indices)
    if flat.size == 0:
        return ""
    if flat.ndim != 1 or flat.dtype.kind not in "iu" or flat.min() < 0 or flat.max() >= len(alphabet):
        wanted = f"a flat array of integers from 0 to {len(alphabet) - 1}"
        raise CorpusError("indices do not fit the alphabet", wanted=wanted, came=f"{flat.dtype} {flat.shape}")
    code_points: npt.NDArray[np.uint32] = _code_points(alphabet)[flat]
    return code_points.tobytes().decode("utf-32-le", "surrogatepass")


def standard_library_files() -> list[Path]:
    """List Python's own modules, then its packages, without tests, generated files and optional parts."""
    root = Path(sysconfig.get_path("stdlib"))
    entries = sorted(root.iterdir()) if root.is_dir() else []
    modules = [path for path in entries if path.suffix == ".py" and not path.name.startswith("_sysconfigdata")]
    packages = [path for path in entries if (path / "__init__.py").is_file() and path.name not in SKIPPED_PACKAGES]
    files = modules + [file for path in packages for file in _files_under(path, frozenset({".py"}), SKIPPED_PACKAGES)]
    if not files:
        raise CorpusError(f"no Python sources are installed in {root}", hint="Give a TEXT to train on.")
    return files


def _given_files(paths: Sequence[Path]) -> list[Path]:
    files: dict[str, Path] = {}  # a file that is given twice is read once, or held-out text would be trained on
    for path in map(Path, paths):
        found = list(_files_under(path, TEXT_SUFFIXES)) if os.path.isdir(path) else [path]
        if not found:
            raise CorpusError(f"no text files are in the directory {path}", wanted=" ".join(sorted(TEXT_SUFFIXES)))
        for file in found:
            files.setdefault(os.path.realpath(file), file)
    return list(files.values())


def _files_under(root: Path, suffixes: frozenset[str], skipped: frozenset[str] = frozenset()) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if name not in skipped and not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix.lower() in suffixes and (path := Path(folder, name)).is_file():
                yield path


def _refuse(error: OSError) -> NoReturn:
    raise CorpusError(f"a directory of texts cannot be read ({error})") from error


def _join(files: Sequence[Path], max_bytes: int | None) -> tuple[str, int, bool]:
    """Return the joined text, how many files it uses, and whether text was left out."""
    texts: list[str] = []
    left = max_bytes
    for used, file in enumerate(files):
        if left == 0:
            return "".join(texts), used, True
        data, cut = _read(file, left)
        texts.append(_decode_file(file, data, cut))
        if cut:
            return "".join(texts), used + 1, True
        left = None if left is None else left - len(data)
    return "".join(texts), len(files), False


def _read(path: Path, limit: int | None) -> tuple[bytes, bool]:
    if os.path.exists(path) and not os.path.isfile(path):
        raise CorpusError(f"{path} is neither a file nor a directory")
    try:
        with path.open("rb") as handle:
            data = handle.read(-1 if limit is None else limit)
            return data, bool(handle.read(1))
    except OSError as error:
        raise CorpusError(f"the text cannot be read ({error})") from error


def _decode_file(path: Path, data: bytes, cut: bool) -> str:
    text = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data, final=not cut)
    if "\0" in text or text.count(REPLACEMENT) * 10 > len(text):
        raise CorpusError(f"{path} is no text in UTF-8", hint="Convert it to UTF-8, or leave it out.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if cut or not lines or lines.endswith("\n") else lines + "\n"


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
