"""What a message tells a reader to type can be typed: every command, flag and option that src names is read by the
real parser. Collected from the source itself and from messages.toml, so that a message nobody meets in a test is
checked too.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import catalogue
import edgescope
from edgescope.cli.main import VERBS, parser
from edgescope.wings.anomaly import cli as anomaly
from edgescope.wings.studies.paper import papers
from edgescope.wings.training import cli as training

ROOT = Path(edgescope.__file__).parent
#: Modules whose flags are another program's: they build its command line, or say what to type to it.
FOREIGN = (
    *(
        "wings/tensorrt/trtexec/program",
        "wings/generation/llama_bench",
        "devices/",
        "wings/doctor/",
        "wings/jetson/",
        "modes/",
        "wings/remote/",
        "wings/verify_board/",
    ),
    *(
        "cli/completion",
        "wings/optimize/standalone",
        "wings/optimize/board_script",
        "process/",
        "telemetry/sampler",
    ),
    *("isolate/persistent", "isolate/fresh", "isolate/forks", "isolate/worker"),
    *("wings/offload/network", "wings/trace/on_board", "wings/trace/nsys_run", "wings/trace/tracers"),
)
OTHER_PROGRAMS = re.compile(
    r"\b(docker|pip|sudo|nvidia-smi|nvpmodel|tegrastats|top|ps|df|rm|cp|scp|sort|python|python3|ssh|free|file|trtexec"
    r"|jetson_clocks|benchmark_app|ls|ulimit|container|fuser|git|tail|iperf3|ping|nsys|ncu|nvprof|perf)\b"
)
STUDIES = tuple(f"study {name}" for name in papers())
#: A verb with parts -> those under which a message of its wing is met.
PARTS_OF = {
    "anomaly": tuple(f"anomaly {part}" for part in anomaly.PARTS),
    "train": tuple(f"train {part}" for part in training.PARTS),
    "study": STUDIES,
}
WINGS = {
    target.split(".")[2]: PARTS_OF.get(verb, (verb,))
    for verb, entry in VERBS.items()
    if (target := entry.target).startswith("edgescope.wings.")
}
MEASURING = ("bench", "optimize", "sweep")
#: Modules whose messages are met under one verb; a wing's under its own, the others' under any verb that measures.
MET_UNDER = {
    "wings/energy/align": ("energy", "bench"),
    **{f"wings/{wing}/": verbs for wing, verbs in WINGS.items()},
    "wings/recommend/": ("recommend", "predict"),
    "wings/video/": ("anomaly watch", *MEASURING),
    "wings/training/": (*PARTS_OF["train"], *MEASURING),
    "wings/trace/": ("trace", *MEASURING),
    "wings/explain/": ("explain", *MEASURING),
    "wings/record/": ("record",),
    "wings/public/": ("public", *MEASURING),
    "wings/optimize/": ("optimize",),
    "report/compare": ("compare",),
    "report/sweep": ("sweep", "recommend"),
    "report/": ("report", "capacity", *STUDIES),
    "analysis/cells/devices": ("compare",),
    "analysis/kernels/": ("trace",),
    "analysis/cells/machines": ("sweep", "recommend", "offload"),
    "analysis/cells/objective": ("optimize",),
    "search/explore": ("recommend",),
    "fit": ("train clips", "anomaly train"),
    "wings/training/clip_": ("train clips", "bench"),
    "models/image/photos": ("train data", *MEASURING),
    "wings/doctor/": ("doctor",),
    "verbs/sweep": ("sweep",),
    "commandline/trial_flags": ("bench", "capacity"),
}
FLAG = re.compile(r"(?<![\w/=<}-])(--[a-z][a-z0-9-]*|-[a-z]\b)(?:[= ]((?:\"[^\"]*\"|[^\s,;:)]+)))?")
#: The program itself as the subject of a sentence.
PROSE = re.compile(
    r"edgescope (?:that|of|on|needs|records|echo|network profile|report:|reads|drives|runs|in the|has|there|made)\b"
    r"|edgescope (?:noted|clock|itself|record made|train clips (?:on|writes)|never asks)\b"
)


@cache
def texts() -> list[tuple[str, int, str]]:
    """Every string of src that is not a docstring: module, line, text; what is filled in reads {}."""
    found = list(_of_the_table())
    for path in sorted(ROOT.rglob("*.py")):
        module, tree = str(path.relative_to(ROOT).with_suffix("")), ast.parse(path.read_text())
        found += [(module, node.lineno, text) for node in _expressions(tree) if (text := _text(node))]
    return found


def _of_the_table() -> Iterator[tuple[str, int, str]]:
    """Every text of messages.toml; where it explains, edgescope is a command between backticks only."""
    for code, row in catalogue.table().items():
        for part, text in row.items() if code != "sections" else ():
            said = text if part == "fix" else re.sub(r"(?<!`)\bedgescope ", "it ", text)
            yield f"messages/{code}", 0, said


def _expressions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but docstrings and the parts of f-strings that are text."""
    for node in ast.iter_child_nodes(tree):
        scope = isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        docstring = scope and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(tree, ast.JoinedStr) and isinstance(node, ast.Constant)):
            yield node
            yield from _expressions(node)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return ""


def commands() -> Iterator[tuple[str, str]]:
    """Every `edgescope VERB ...` of the texts, up to where the sentence goes on."""
    for module, line, text in texts():
        for match in re.finditer(r"\bedgescope (?=[a-z-])((?:\"[^\"]*\"|[^;:,)(\n`])*)", text):
            if not PROSE.match(match[0]) and "--{}" not in match[0]:
                yield f"{module}:{line}", re.sub(r"\b\{\}", "", match[1]).split("  ")[0].strip()


@cache
def full_parser() -> argparse.ArgumentParser:
    return parser()


def accepts(words: list[str]) -> bool:
    """Whether the parser takes these words, whatever is filled in and whatever else it requires."""
    for filled in ("1", "cpu", "1s"):
        told = io.StringIO()
        try:
            with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
                full_parser().parse_args([filled if w == "{}" or w.isupper() else w for w in words])
        except SystemExit as stop:
            if stop.code and not re.search("are required|expected one argument", told.getvalue()):
                continue
        return True
    return False


def taken(words: list[str]) -> int:
    """How many of the words the parser takes: what follows them is the sentence that they stand in."""
    return next((n for n in range(len(words), 0, -1) if accepts(words[:n])), 0)


def typed(command: str) -> bool:
    """Whether a reader can type the command as the message has it."""
    words = [w for w in shlex.split(command.replace("'", "")) if w != "..."]
    used = taken(words)
    known = words[0] in VERBS or words[0].startswith("--")
    return (known and used > 0 and not [w for w in words[used:] if w.startswith("-")]) or words[0] == "help"


def test_every_command_in_a_message_can_be_typed():
    found = sorted(set(commands()))
    assert len(found) > 40
    assert not [(where, command) for where, command in found if not typed(command)]


def test_what_the_parser_takes_of_a_sentence():
    assert not taken(["network", "profile"])
    assert taken(["bench", "m", "--batch", "4", "says", "more"]) == 4


def hints() -> Iterator[tuple[str, str, str, str]]:
    """Every flag in a text: where, the verbs that the text names, the flag, the word that follows it."""
    for module, line, text in texts():
        foreign = module.startswith(tuple(FOREIGN)) or f"{module}:{line}" in FOREIGN
        where = module.split("/")
        defined = {"cli", "commandline", "commands"} & set(where) and re.fullmatch(r"--?[a-z-]+", text)
        if defined or re.fullmatch(r"--[a-zA-Z]+=\S*", text):
            continue  # where a flag is defined, or a word of another program's command line
        if not foreign and not OTHER_PROGRAMS.search(text):
            named = [
                v
                for v in re.findall(r"edgescope ((?:study|train|anomaly) \w+|[a-z]+)", text)
                if v.split(" ")[0] in VERBS
            ]
            for match in FLAG.finditer(text):
                yield (
                    f"{module}:{line}",
                    "|".join(named),
                    match[1],
                    (match[2] or "").rstrip(".\"'"),
                )


@cache
def flags(verb: str) -> dict[str, argparse.Action]:
    found = full_parser()
    for word in verb.split():
        found = next(a for a in found._actions if isinstance(a, argparse._SubParsersAction)).choices[word]
    return {name: action for action in found._actions for name in action.option_strings}


def verbs_of(module: str, named: str) -> tuple[str, ...]:
    if named:
        return (*named.split("|"), *MEASURING)
    if module.startswith(("cli/", "messages/")) or module in ("registry", "records"):
        return (*VERBS, *chain.from_iterable(PARTS_OF.values()))
    return next((v for start, v in MET_UNDER.items() if module.startswith(start)), MEASURING)


def reads(action: argparse.Action, value: str) -> bool:
    """Whether a flag takes what is written behind it; a word of prose, or a NAME to fill in, is not its value."""
    if action.nargs == 0 or "{}" in value or not re.search(r"\d", value) or value.isupper():
        return True
    try:
        (action.type or str)(value.strip('"'))
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return True


def exists(where: str, named: str, name: str, value: str) -> bool:
    """Whether a verb that the message can be met under has the flag, and takes the value."""
    known = [flags(verb)[name] for verb in verbs_of(where.partition(":")[0], named) if name in flags(verb)]
    known += [flags("")[name]] if name in flags("") else []
    return any(reads(action, value) for action in known)


def test_every_flag_in_a_message_exists_and_takes_the_value():
    found = sorted(set(hints()))
    assert len(found) > 100
    assert not [hint for hint in found if not exists(*hint)]


#: Options that several backends have, by what they are called there -> the module that names them.
INT8 = ("INT8_OPTIONS", "DYNAMIC_OPTIONS", "TENSORRT_INT8_OPTIONS")
SHARED = dict.fromkeys(INT8, "artifacts/for_precision")
SHARED |= {"shared.OPTIONS": "backends/pytorch/module", "plugin.OPTIONS": "backends/ort/plugin"}


#: The wings that bring an engine.
ENGINES = ("generation", "litert", "openvino", "tensorrt")


@cache
def options() -> dict[str, set[str]]:
    """Module of the backends -> the options that its OPTIONS name."""
    found: dict[str, set[str]] = {}
    for path in sorted(
        [
            *(ROOT / "backends").rglob("*.py"),
            *(path for name in ENGINES for path in (ROOT / "wings" / name).rglob("*.py")),
            ROOT / "artifacts/for_precision.py",
        ]
    ):
        module = str(path.relative_to(ROOT).with_suffix(""))
        for node in ast.walk(ast.parse(path.read_text())):
            target = node.target if isinstance(node, ast.AnnAssign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else target
            if (
                isinstance(target, ast.Name)
                and target.id.endswith("OPTIONS")
                and isinstance(node.value, ast.Dict)
            ):
                names = {k.value for k in node.value.keys if isinstance(k, ast.Constant)}
                found.setdefault(module, set()).update(names)
                parts = zip(node.value.keys, node.value.values, strict=True)
                spread = [ast.unparse(v) for k, v in parts if k is None]
                found[module] |= {f"**{SHARED[name]}" for name in spread}
    for names in found.values():
        names |= {o for n in list(names) if n.startswith("**") for o in found[n.removeprefix("**")]}
    return found


def test_every_option_in_a_message_is_one_of_the_backend():
    assert "min_subgraph" in options()["wings/tensorrt/ort_provider"]
    assert "xnnpack" in options()["wings/litert/backend"]
    found = [(w, v) for w, _, n, v in sorted(set(hints())) if n == "--option" and v and v[0].islower()]
    assert len(found) > 15
    everywhere = set().union(*options().values(), {"out"})
    for where, value in found:
        folder = where.partition(":")[0].rpartition("/")[
            0
        ]  # a plug-in provider's options are a part of its engine's
        known = set().union(*(v for module, v in options().items() if module.rpartition("/")[0] == folder))
        known = (known or everywhere) | {"out"}
        assert value.partition("=")[0] in known, (where, value, sorted(known))
