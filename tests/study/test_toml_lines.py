"""Lines of keys: nothing in a comment, a string or a long array may pass for one."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.study.schema import toml_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOSTILE = '''# batch = 1
title = "x # no = comment [trial]" # [exclude]
[trial]  # [other]
model = ["a,]b", # one, ]
  'c\\',
  "d\\"e]",
]
text = """
batch = 2
[sweep]
he said ""quoted"" \\""" = 3 """""
"odd key" = 1
options.threads = [1,
  2]
lit = \'\'\'
precision = 1\'\'\'
inner = {p = 1, q.r = [
 3], "s}" = "}"}
[[exclude]]
batch = 4
[exclude.options]
threads = 1
[[exclude]]
batch = 8
[ a . "b.c" ]
d = 1979-05-27 07:32:00
'''


def test_a_hostile_text():
    found = toml_lines(HOSTILE)
    at = {
        ("title",): 2,
        ("trial",): 3,
        ("trial", "model"): 4,
        ("trial", "model", 0): 4,
        ("trial", "model", 1): 5,
        ("trial", "model", 2): 6,
        ("trial", "text"): 8,
        ("trial", "odd key"): 12,
        ("trial", "options"): 13,
        ("trial", "options", "threads"): 13,
        ("trial", "options", "threads", 0): 13,
        ("trial", "options", "threads", 1): 14,
        ("trial", "lit"): 15,
        ("trial", "inner"): 17,
        ("trial", "inner", "p"): 17,
        ("trial", "inner", "q"): 17,
        ("trial", "inner", "q", "r"): 17,
        ("trial", "inner", "q", "r", 0): 18,
        ("trial", "inner", "s}"): 18,
        ("exclude",): 19,
        ("exclude", 0): 19,
        ("exclude", 0, "batch"): 20,
        ("exclude", 0, "options"): 21,
        ("exclude", 0, "options", "threads"): 22,
        ("exclude", 1): 23,
        ("exclude", 1, "batch"): 24,
        ("a",): 25,
        ("a", "b.c"): 25,
        ("a", "b.c", "d"): 26,
    }
    assert found == at
    assert set(found) == set(paths(tomllib.loads(HOSTILE)))


def paths(value, before=()):
    """Every path of a parsed text."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*before, name)
        yield from paths(inner, (*before, name))


BASIC = st.text(st.sampled_from("ab =[]{}#,.'\""), max_size=8)
LITERAL = st.text(st.sampled_from('ab =[]{}#,."\\'), max_size=8)
ESCAPED = BASIC.map(lambda s: s.replace("\\", "\\\\").replace('"', '\\"'))
MULTI = st.lists(st.sampled_from(["[trial]", "batch = 1", '""', "# no", "x''", "'''", "]"]), max_size=4)
SCALARS = st.one_of(
    st.integers(-9, 9).map(str),
    st.sampled_from(["true", "1.5", "1979-05-27 07:32:00", "inf"]),
    ESCAPED.map(lambda s: f'"{s}"'),
    LITERAL.map(lambda s: f"'{s}'"),
    MULTI.map(lambda rows: '"""\n' + "\n".join(rows) + '\n"""'),
    MULTI.map(lambda rows: "'''\n" + "\n".join(rows).replace("'''", "''") + "\n'''"),
)
GAPS = st.sampled_from(["", " ", "\n", " # ], = [t]\n", "\n\n\t"])


@st.composite
def values(draw, depth=2):
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind < 2:
        return draw(SCALARS)
    if kind == 2:
        items = draw(st.lists(values(depth=depth - 1), max_size=3))
        return "[" + "".join(f"{draw(GAPS)}{item}{draw(GAPS)}," for item in items) + draw(GAPS) + "]"
    items = draw(st.lists(values(depth=depth - 1), max_size=2))
    return "{" + ", ".join(f'"k {i}".x-{i} = {item}' for i, item in enumerate(items)) + "}"


@st.composite
def documents(draw):
    """A TOML text and the line of each top-level key that was written into it."""
    text, wanted, table = "", {}, ()
    for number in range(draw(st.integers(1, 6))):
        text += draw(st.sampled_from(["", "\n", "# key0 = 1\n", "  # [t0]\n\n"]))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            table = (f"t{number}",)
            wanted[table] = text.count("\n") + 1
            text += f"[ {table[0]} ] # x\n"
        elif kind == 1:
            count = sum(1 for p in wanted if p[:1] == ("many",) and len(p) == 2)
            table = ("many", count)
            wanted[table] = text.count("\n") + 1
            text += "[[many]]\n"
        wanted[(*table, f"key{number}")] = text.count("\n") + 1
        text += f"key{number} = {draw(values())}\n"
    return text, wanted


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(documents())
def test_every_path_is_found_and_each_key_on_its_line(document):
    text, wanted = document
    found = toml_lines(text)
    assert {path: found[path] for path in wanted} == wanted
    assert set(found) == set(paths(tomllib.loads(text)))
