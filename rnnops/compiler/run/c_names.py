"""Names of what is exported as C: functions, files, arguments.

A program may include headers of the standard library before ours, and their macros replace words. So no name is a
keyword of C or C++, or a name or macro of their libraries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rnnops.errors import FeedError

FUNCTIONS = ("init", "set_weights", "reset", "run")  # of a program, behind its name
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")  # what begins with _ belongs to the compiler
DEFAULT = "model"
WORDS_OF_C = """
auto break case char const constexpr continue default do double else enum extern float for goto if inline int long
nullptr register restrict return short signed sizeof static struct switch typedef typeof typeof_unqual union unsigned
void volatile while alignas alignof bool true false int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"""
WORDS_OF_CPP = """
and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept const_cast
consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert static_cast template
this thread_local throw try typeid typename using virtual wchar_t xor xor_eq"""
MACROS = """
BIG_ENDIAN BUFSIZ BYTE_ORDER EOF F_LOCK F_OK F_TEST F_TLOCK F_ULOCK I INFINITY LITTLE_ENDIAN L_INCR L_SET L_XTND
L_ctermid L_cuserid L_tmpnam MAXFLOAT MAX_CANON MAX_INPUT MINSIGSTKSZ NAN NFDBITS NGREG NSIG NULL NZERO ONCE_FLAG_INIT
PDP_ENDIAN PIPE_BUF P_tmpdir R_OK STDERR_FILENO STDIN_FILENO STDOUT_FILENO WCONTINUED WEOF WEXITED WNOHANG WNOWAIT
WSTOPPED WUNTRACED W_OK X_OK assert complex errno h_errno i386 imaginary linux math_errhandling noreturn sa_handler
sa_sigaction si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr
si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value sigev_notify_attributes sigev_notify_function
st_atime st_ctime st_mtime stderr stdin stdout unix"""  # that a compiler defines, or a header of C before ours
FAMILIES = re.compile(
    r"E[A-Z0-9]{2,} | SIG[A-Z0-9_]+ | (PRI|SCN)[a-zX]+[A-Z0-9]* | (SNAN|HUGE_VAL)[A-Z0-9_]* | CLOCKS_PER_SEC"
    r"| [A-Z0-9_]+_(MAX|MIN|WIDTH|BIT)"
    r"| (ADJ|ATOMIC|BUS|CLD|CLOCK|CLOSE|DBL|DEC\d*X?|EXIT|FD|FE|FLT\d*X?|FP|FPE|ILL|LC|LDBL|M|MATH|MOD|NL|POLL"
    r"|PTHREAD|REG|RENAME|SA|SEEK|SEGV|SI|SS|STA|TIME|TIMER|TRAP|TSS)_[A-Z0-9_]+ | DECIMAL_DIG"
    r"| M_[A-Z0-9_]+(f\d*x?|l)",
    re.VERBOSE,
)  # of macros in headers of C, with what POSIX adds to them
OWN = "memory weights ready"  # of exported headers
HEADERS_OF_C = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbit
stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype"""
HEADERS = f"{HEADERS_OF_C} alloca endian features malloc memory pthread sched strings unistd"  # NAME.h would hide these
FILES_OF_WINDOWS = "aux con nul prn " + " ".join(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))
INITIALIZED = """
atomic cnd mtx obstack posix_spawn_file_actions posix_spawnattr pthread_attr pthread_barrier pthread_barrierattr
pthread_cond pthread_condattr pthread_mutex pthread_mutexattr pthread_rwlock pthread_rwlockattr pthread_spin
sem"""  # NAME_init is a function or a macro of a library
RESERVED = frozenset(" ".join([WORDS_OF_C, WORDS_OF_CPP, MACROS, OWN]).split())
FILES = frozenset(f"{HEADERS} {FILES_OF_WINDOWS}".split())


def is_name(name: str) -> bool:
    """True if functions and files may be called after a name; some file systems see no capitals."""
    taken = name in RESERVED or name in INITIALIZED.split() or name.lower() in FILES
    return WORD.fullmatch(name) is not None and not taken


def name_of(net: str) -> str:
    """The name in functions and files of a net."""
    return net if is_name(net) else DEFAULT


def checked_name(name: object, net: str) -> str:
    """A name that functions and files are called after. Raises FeedError for one that they cannot have."""
    if not isinstance(name, str) or not is_name(name):
        wanted = "a word of C: at most 60 letters, digits and _, a letter first, no keyword, and no name of C's library"
        raise FeedError("no name for functions of C", net=net, wanted=wanted, came=repr(name)[:80])
    return name


def c_names(names: Sequence[str], header: str) -> list[str]:
    """Words of C for names of blobs, each another, and none that the header of this name declares or defines."""
    parts, found = (*FUNCTIONS, "model", "MEMORY", "WEIGHTS", "DIGEST"), list[str]()
    taken = {*RESERVED, f"RNNOPS_{header}_H", *(f"{header}_{part}" for part in parts)}
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:50] or "blob"
        word = f"_{word}" if word[0].isdigit() else word
        word = f"{word}_value" if FAMILIES.fullmatch(word) else word
        unique, count = word, 1
        while unique in found or unique in taken:
            count += 1
            unique = f"{word}_{count}"
        found.append(unique)
    return found
