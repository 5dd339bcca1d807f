"""Numbers as programs print them for a reader: `1,234.5`, `1.234,5`, `1 234,5`, `1'234.5`; told by the whole file.

One text may be ambiguous (`1.234` is a thousand and some, or one and some); a file of them seldom is. What stays
ambiguous is refused, because a factor of a thousand is no small error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Spaces and apostrophes only ever set thousands apart.
_GROUPS = re.compile(
    r"(?<=\d)[ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}'\N{RIGHT SINGLE QUOTATION MARK}](?=\d)"
)
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+(?:[eE][+-]?\d+)?")
#: A number whose only mark may set thousands apart or begin the decimals.
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def decimal_mark(texts: Iterable[str]) -> str:
    """Return the decimal mark of the numbers among some texts, `.` or `,`; '' if they contradict or do not tell.

    A comma alone before three digits sets thousands apart where nothing says otherwise: that is how the programs
    print without a locale.
    """
    marks: set[str] = set()
    either: set[str] = set()
    plain = False
    for text in texts:
        word = _GROUPS.sub("", text.strip())
        if not _NUMBER.fullmatch(word):
            continue
        plain |= bool(re.fullmatch(r"[+-]?\d{4,}(?:[.,]\d*)?", word)) and word == text.strip()
        if _EITHER.fullmatch(word) and word == text.strip():
            either.add("." if "." in word else ",")
        elif mark := _mark(word):
            marks.add(mark)
    if marks:
        return marks.pop() if len(marks) == 1 else ""
    if plain and len(either) == 1:
        return either.pop()  # thousands are not set apart in this file, so it begins decimals
    return "." if either <= {","} else ""


def _mark(word: str) -> str:
    """Return the decimal mark that one number proves, '' if it proves none."""
    points, commas = word.count("."), word.count(",")
    if points and commas:
        return max(".,", key=word.rfind)
    if points + commas == 1:
        return "." if points else ","
    return "," if points else "." if commas else ""


def number(text: str | None, mark: str) -> float | None:
    """Return the number that a text is with this decimal mark; None if it is none."""
    word = _GROUPS.sub("", (text or "").strip())
    if not _NUMBER.fullmatch(word):
        return None
    other = "," if mark == "." else "."
    whole, _, decimals = word.partition(mark)
    grouped = re.fullmatch(rf"[+-]?\d{{1,3}}(?:{re.escape(other)}\d{{2,3}})*{re.escape(other)}\d{{3}}", whole)
    if other in decimals or (other in whole and not grouped):
        return None
    try:
        return float(whole.replace(other, "") + ("." + decimals if decimals else ""))
    except ValueError:
        return None
