"""HTML that cannot be injected into: every string is escaped unless a tag made it.

A model's name, an error text or an environment variable may hold `<script>`. `tag` escapes its children and
attributes; only `Markup`, which only `tag`, `join` and `raw` make, passes as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"br", "col", "img", "meta", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | Markup | None


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | bool | None) -> Markup:
    """Return `<name ...>children</name>`; class_ is class, data_x is data-x; None and False are left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        parts.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Markup:
    """Return the children one after another, strings escaped, None left out."""
    out = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            out.append(str(child))
        elif isinstance(child, str | int):
            out.append(html.escape(str(child)))
        else:
            out.append(str(join(*child)))
    return Markup("".join(out))


def raw(text: str) -> Markup:
    """Vouch for `text` being safe: a style sheet or a script of ours."""
    return Markup(text)
