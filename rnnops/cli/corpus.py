"""The text of a training run: alphabet, split, batches, and baselines to beat.

**The text** (`Corpus`). Without paths it is the sources of the Python standard library, which every machine with Python
has. Files are decoded as UTF-8 (other bytes become U+FFFD), newlines become line feeds, and files come in a fixed
order.

Held-out part: the text is cut into 1 to 40 equal blocks (one per 20,000 characters), and the middle twentieth of each
block is held out.

Alphabet: it is chosen only from the training part. It has at most the 127 most frequent characters; of equally frequent
ones, those with lower code points. A character must make up at least one in 100,000 characters and occur at least
twice. All other characters become the replacement symbol U+FFFD, which is always in the alphabet. Indices are in the
order of code points.

Limits: bits per character are bits per symbol of this alphabet. Blocks are joined, and their joints are scored like any
other text.

**Windows** (`Streams`) are for truncated back-propagation with carried states. The text is cut into N equal streams.
Window k of an epoch holds the steps k*T .. (k+1)*T-1 of every stream. So each stream continues where it stopped in the
window before. The position of a window, a count from the start of training, is all that is needed to resume. An epoch
leaves out fewer than T*N + N characters at the ends of streams.

**Baselines** (`baselines`): bits per held-out character of character tables and of two compressors. A table predicts a
character from the last 0 to 3 characters. Counts of the training text are interpolated over context lengths by Witten
and Bell's rule,

    p_k(c | context) = (count(context c) + followers(context) * p_{k-1}(c | shorter context))
                       / (count(context) + followers(context)),

where followers is the number of different characters seen after the context, and p_{-1} is uniform over the alphabet.
For a context that was never seen, p_k is p_{k-1}. The first held-out characters have the end of the training text as
context.

For compressors: the size of training text and held-out text compressed together, minus the size of the compressed
training text, in bits per held-out character, on UTF-8. Unlike tables, compressors also learn from held-out text. lzma
gets a dictionary that covers the whole text, up to 1 GiB. bz2 works in blocks of 900,000 bytes and knows nothing of
earlier blocks. So its figure is rough: it depends on where blocks end.
"""

from __future__ import annotations

import bz2
import codecs
import hashlib
import lzma
import os
import platform
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rnnops.errors import RnnopsError

DEFAULT_BYTES = 8_000_000
MIN_CHARACTERS = 2_000
HELD_OUT_PART = 20  # 1 in 20 characters is held out
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
    counts[ord(REPLACEMENT)] = 0  # it is added in any case
    most_frequent = np.argsort(-counts, kind="stable")[: ALPHABET_SIZE - 1]
    frequent = most_frequent[counts[most_frequent] >= max(2, -(-len(code_points) // RARE_PART))]
    return "".join(sorted({chr(point) for point in frequent} | {REPLACEMENT}))


def encode(text: str, alphabet: str) -> Indices:
    """Return the index of each character. A character outside of the alphabet gets the index of U+FFFD."""
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
    files: dict[str, Path] = {}  # each file is read once: a second copy could bring held-out text into training
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
        raise CorpusError(f"{path} is not a text in UTF-8", hint="Convert it to UTF-8, or leave it out.")
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if cut or not lines or lines.endswith("\n") else lines + "\n"


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


class BatchError(RnnopsError):
    """Window sizes or a position make no sense, or the text is too short for them."""


@dataclass(frozen=True, eq=False)
class Window:
    """One training step's characters.

    Args:
        inputs, targets: [T, N] int32. A target is the character after its input.
        reset: whether streams begin anew, so that carried states must be reset.
    """

    inputs: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    reset: bool


class Streams:
    """The windows of `streams` contiguous parts of a text, `steps` characters of each at a time."""

    def __init__(self, text: npt.NDArray[np.integer[Any]], steps: int, streams: int) -> None:
        _check_count("steps", steps, 1)
        _check_count("streams", streams, 1)
        if len(text) <= steps * streams:
            raise BatchError(
                f"the text is too short for {streams} streams of {steps} steps",
                wanted=f"more than {steps * streams} characters",
                came=len(text),
                hint="Use fewer streams, fewer steps or a longer text.",
            )
        length = (len(text) - 1) // streams
        self.steps, self.streams, self.stream_length = steps, streams, length
        used = text[: length * streams + 1]
        # Transposed views: row t holds character t of every stream.
        self._inputs = used[:-1].reshape(streams, length).T
        self._targets = used[1:].reshape(streams, length).T

    @property
    def windows_per_epoch(self) -> int:
        """How many whole windows the streams have."""
        return self.stream_length // self.steps

    @property
    def characters_per_window(self) -> int:
        """T * N. A position times this is the number of characters seen."""
        return self.steps * self.streams

    def window(self, position: int) -> Window:
        """Return the window at `position`; positions beyond the first epoch wrap."""
        _check_count("position", position, 0)
        index = position % self.windows_per_epoch
        return self._window(slice(index * self.steps, (index + 1) * self.steps))

    def one_epoch(self, partial: bool = False) -> Iterator[Window]:
        """Yield the windows of one epoch. With `partial` a last shorter window follows, so that at most N - 1 targets
        are left out."""
        for position in range(self.windows_per_epoch):
            yield self.window(position)
        done = self.windows_per_epoch * self.steps
        if partial and done < self.stream_length:
            yield self._window(slice(done, None))

    def _window(self, rows: slice) -> Window:
        inputs, targets = (table[rows].astype(np.int32, order="C") for table in (self._inputs, self._targets))
        return Window(inputs, targets, reset=rows.start == 0)


def _check_count(what: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BatchError(f"{what} is not a usable count", wanted=f"an int of at least {least}", came=repr(value))


MAX_ORDER = 3

Keys = npt.NDArray[np.unsignedinteger[Any]]
Counts = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]


class TableError(RnnopsError):
    """A character table was asked for or used with arrays that do not fit."""


@dataclass(frozen=True, eq=False)
class Level:
    """Counts for one context length. A sequence of characters is one number, in the base of the alphabet's size.

    Args:
        grams, gram_counts: context and next character, sorted, and how often each occurs.
        contexts, context_counts: contexts, sorted, and how often a character follows each.
        followers: how many different characters follow each context.
    """

    grams: Keys
    gram_counts: Counts
    contexts: Keys
    context_counts: Counts
    followers: Counts

    @classmethod
    def count(cls, grams: Keys, alphabet_size: int) -> Level:
        """Count every gram and every context by sorting."""
        unique, counts = np.unique(grams, return_counts=True)
        contexts, first, followers = np.unique(unique // unique.dtype.type(alphabet_size), True, False, True)
        return cls(unique, counts, contexts, np.add.reduceat(counts, first), followers)

    def refine(self, grams: Keys, shorter: Probabilities, alphabet_size: int) -> Probabilities:
        """Return the probability of each gram's last character.

        Args:
            shorter: these probabilities under the shorter context.
        """
        contexts = grams // grams.dtype.type(alphabet_size)
        totals = _look_up(self.contexts, self.context_counts, contexts)
        followers = _look_up(self.contexts, self.followers, contexts)
        counts = _look_up(self.grams, self.gram_counts, grams)
        blended = (counts + followers * shorter) / np.maximum(totals + followers, 1)
        return np.where(totals > 0, blended, shorter)


@dataclass(frozen=True, eq=False)
class CharacterTable:
    """Witten-Bell tables of all context lengths up to `order`."""

    levels: tuple[Level, ...]
    alphabet_size: int

    @classmethod
    def train(cls, text: Indices, alphabet_size: int, order: int = MAX_ORDER) -> CharacterTable:
        """Count contexts of 0 to `order` characters in `text`."""
        if not 0 <= order < len(text):
            raise TableError("a table does not fit its text", wanted=f"order 0 to {len(text) - 1}", came=order)
        if alphabet_size ** (order + 1) > 2**64:
            raise TableError("a table's contexts do not fit 64 bits", came=f"{alphabet_size} characters, order {order}")
        grams = (_grams(text, length, alphabet_size) for length in range(1, order + 2))
        return cls(tuple(Level.count(level_grams, alphabet_size) for level_grams in grams), alphabet_size)

    @property
    def order(self) -> int:
        """The longest context."""
        return len(self.levels) - 1

    def probabilities(self, text: Indices) -> list[Probabilities]:
        """Return for each order 0, 1, ... the probability of every character of `text` from index `order` on."""
        scored = len(text) - self.order
        current = np.full(scored, 1 / self.alphabet_size)
        result = []
        for length, level in enumerate(self.levels, 1):
            grams = _grams(text[self.order + 1 - length :], length, self.alphabet_size)
            current = level.refine(grams, current, self.alphabet_size)
            result.append(current)
        return result

    def bits(self, text: Indices) -> list[float]:
        """Return for each order 0, 1, ... the mean bits of the characters of `text` from index `order` on."""
        return [float(-np.log2(values).mean()) for values in self.probabilities(text)]


def baselines(corpus: Corpus) -> dict[str, float]:
    """Return bits per held-out character by name: `order 0` .. `order 3`, `lzma`, `bz2`."""
    table = CharacterTable.train(corpus.train, len(corpus.alphabet))
    text = np.concatenate([corpus.train[-MAX_ORDER:], corpus.held_out])
    bits = {f"order {order}": value for order, value in enumerate(table.bits(text))}
    return bits | compressor_bits(corpus)


def compressor_bits(corpus: Corpus) -> dict[str, float]:
    """Return how many bits a held-out character adds to the compressed training text, for lzma and bz2."""
    train, held_out = (corpus.decode(part).encode("utf-8", "surrogatepass") for part in (corpus.train, corpus.held_out))
    texts = (train, train + held_out)
    compressors: tuple[Callable[[bytes], int], ...] = (_lzma_size, lambda data: len(bz2.compress(data)))
    with ThreadPoolExecutor(len(texts)) as pool:
        sizes = [list(pool.map(compressor, texts)) for compressor in compressors]
    differences = [(together - alone) * 8 / len(corpus.held_out) for alone, together in sizes]
    return dict(zip(("lzma", "bz2"), differences, strict=True))


def _lzma_size(data: bytes) -> int:
    dictionary = max(1 << 16, min(1 << 30, len(data)))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": dictionary}]
    return len(lzma.compress(data, lzma.FORMAT_RAW, filters=filters))


def _grams(text: Indices, length: int, alphabet_size: int) -> Keys:
    """Return every run of `length` characters as a number; the last character is the lowest digit."""
    dtype = np.uint32 if alphabet_size**length <= 2**32 else np.uint64
    grams: Keys = np.zeros(len(text) - length + 1, dtype)
    for offset in range(length):
        grams *= dtype(alphabet_size)
        grams += text[offset : len(text) - length + 1 + offset]
    return grams


def _look_up(keys: Keys, values: Counts, wanted: Keys) -> Counts:
    """Return the value of each wanted key, zero for unknown keys. `keys` must be sorted."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)
