"""What names a machine, its owner or its network, taken out of facts, of results and of what programs say.

A fact is left out by its name. Of a sentence nobody knows what is in it: so the words that name this machine are
collected first (its host, users, serial numbers, addresses), and taken out wherever they stand, with whatever has the
form of an address. `Names.left` then says what is still there, so that a file can be refused before it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgescope.records import Json, Machine, Result

_NAMING = re.compile(r"hostname|serial|uuid|mac_address|^environment$|^command$|^git$")
"""Facts of a machine's state that name it or its owner, or show other activity."""
_SERIAL_END = re.compile(r" #\w+$")
"""The end of the serial number, which devices.cpu.facts appends to a Jetson's name."""

WHERE: Mapping[str, tuple[str, ...]] = {
    "host": ("proc/sys/kernel/hostname", "etc/hostname"),
    "user": ("etc/passwd",),
    "serial": (
        "proc/device-tree/serial-number",
        "proc/cpuinfo",
        "etc/machine-id",
        "sys/class/dmi/id/*_serial",
        "sys/class/dmi/id/product_uuid",
        "sys/bus/usb/devices/*/serial",
        "sys/block/*/device/serial",
        "sys/block/*/device/cid",
    ),
    "address": ("sys/class/net/*/address", "proc/net/fib_trie", "proc/net/if_inet6"),
}
"""What a word is -> the files, below the root, that hold such words."""
_ANYONES = frozenset(
    "root nobody ubuntu debian nvidia jetson user pi admin localhost nano orin xavier thor docker default none".split()  # noqa: SIM905
)
"""Names that many machines have: they name nobody, and stand in the names of products."""
_SHORTEST = {"host": 2, "user": 2, "serial": 5, "address": 6}
_MARK = re.compile(r"<(?:host|user|serial|address|board)>")
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"ssh://[^\s\"')?]+"), "ssh://<board>"),
    (re.compile(r"(?<![\w.])[\w.+-]+@[\w.-]*\w"), "<user>@<host>"),
    (re.compile(r"/(?:home|Users)/[^/\s\"':,;)]+|(?<![\w/])/root(?=/|\b)"), "~"),
    (re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<serial>"),
    (re.compile(r"\b[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}\b"), "<address>"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?(?![\w:])"), "<address>"),
    (re.compile(r"\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}\b"), "<address>"),
)
"""What has the form of an address, a folder of a user, or an identity."""
_QUAD = re.compile(r"(?<![\w.])(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\w.]|\.\d)")
_VERSIONS_TO = 30
"""Four numbers whose first is lower are a version (TensorRT 10.7.0.23), unless they
stand where an address stands; this machine's own addresses are among the words."""
_ADDRESSED = re.compile(r"(?:host|from|to|at|inet|//|\[|address) ?$", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """Words that name a machine, its owner or its network -> what each is: host, user, serial or address."""

    words: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[str, str], also: Iterable[tuple[str, str]] = ()) -> Names:
        """Return the words in the text of some files of WHERE (path below the root -> text), and (kind, word) more."""
        found = [(kind, word) for path, text in files.items() for kind, word in _words(path, text)]
        words = {
            word: kind
            for kind, word in (*found, *also)
            if len(word) >= _SHORTEST[kind] and word.lower() not in _ANYONES and set(word) - set("0-:.f x")
        }
        return cls(words)

    @classmethod
    def here(cls, root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Names:
        """Return the words that name this machine, who is logged in, and from where."""
        files = {}
        for pattern in (p for patterns in WHERE.values() for p in patterns):
            for path in root.glob(pattern):
                files[str(path.relative_to(root))] = _text(path)
        users = [("user", environ.get(key, "")) for key in ("USER", "LOGNAME", "SUDO_USER")]
        home = ("user", Path(environ.get("HOME", "")).name)
        ssh = [("address", word) for word in environ.get("SSH_CONNECTION", "").split()]
        return cls.of(files, [*users, home, *(pair for pair in ssh if "." in pair[1] or ":" in pair[1])])

    def __or__(self, other: Names) -> Names:
        """Return the words of both."""
        return Names({**self.words, **other.words})

    def without(self, value: Json) -> Any:
        """Return a JSON value whose texts name nobody; keys stay, and so does what is no text."""
        if isinstance(value, Mapping):
            return {key: self.without(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.without(item) for item in value]
        return self.plain(value) if isinstance(value, str) else value

    def plain(self, text: str) -> str:
        """Return a text with a mark such as <host> in place of each word that names somebody."""
        for form, mark in _FORMS:
            text = form.sub(mark, text)
        text = _QUAD.sub(lambda found: _quad(found, text), text)
        for word in sorted(self.words, key=len, reverse=True):
            text = _whole(word).sub(f"<{self.words[word]}>", text)
        return text

    def left(self, text: str) -> list[str]:
        """Return the kinds of the words that still stand in a text; [] if it names nobody."""
        bare = _MARK.sub("", text)
        return sorted({kind for word, kind in self.words.items() if _whole(word).search(bare)})


def _quad(found: re.Match[str], text: str) -> str:
    numbers = [int(n) for n in found.groups()]
    stands = bool(_ADDRESSED.search(text[: found.start()])) or text[found.end() :].startswith((":", "/"))
    return "<address>" if max(numbers) < 256 and (numbers[0] >= _VERSIONS_TO or stands) else found[0]


def _whole(word: str) -> re.Pattern[str]:
    """Return what finds a word that is no part of a longer one."""
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", re.IGNORECASE)


def _words(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, word) for each word in one file of WHERE."""
    if path == "etc/passwd":
        yield from _users(text)
    elif path == "proc/cpuinfo":
        yield from (("serial", word) for word in re.findall(r"(?m)^Serial\s*:\s*(\S+)", text))
    elif path == "proc/net/fib_trie":
        found = set(re.findall(r"\|-- (\S+)", text))
        yield from (("address", word) for word in found if not word.startswith(("127.", "0.")))
    elif path == "proc/net/if_inet6":
        for line in text.splitlines():
            yield "address", ":".join(re.findall("....", line.split(" ")[0]))
    else:
        kind = next((k for k, patterns in WHERE.items() if any(_fits(path, p) for p in patterns)), "")
        if kind:
            yield kind, text.strip("\0 \n")


def _fits(path: str, pattern: str) -> bool:
    return bool(re.fullmatch("[^/]*".join(map(re.escape, pattern.split("*"))), path))


def _users(text: str) -> Iterator[tuple[str, str]]:
    """Yield login and full name of every person in a passwd file: ids from 1000 on, without nobody."""
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) > 5 and parts[2].isdigit() and 1000 <= int(parts[2]) < 60_000:
            yield "user", parts[0]
            yield from (("user", word) for word in parts[4].split(",") if word)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def nameless(result: Result) -> Result:
    """Return the result without host name, serial numbers, environment and command line.

    Where the end of a serial number was part of the machine's name its id changes: two boards of one kind then
    look like one machine.
    """
    return replace(result, machine=of_nobody(result.machine))


def of_nobody(machine: Machine) -> Machine:
    """Return a machine's facts without those that name it, its owner, or show what else it does."""
    return Machine(_without(machine.stable), _without(machine.state))


def _without(value: Json) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _left_out() if _NAMING.search(str(key)) else _without(item) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(item) for item in value]
    return _SERIAL_END.sub("", value) if isinstance(value, str) else value


def _left_out() -> dict[str, str]:
    return {"absent": "left out of the recording"}
