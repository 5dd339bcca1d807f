"""Print a script that completes verbs, flags and known values: models, engines, precisions, results in the store.

edgescope completion bash     # in ~/.bashrc: source <(edgescope completion bash)
edgescope completion zsh      # at the end of ~/.zshrc: source <(edgescope completion zsh)
edgescope completion fish     # in ~/.config/fish/config.fish: edgescope completion fish | source

The script is made from the parsers of this version. It starts no Python when it completes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from edgescope import registry
from edgescope.cli import docs
from edgescope.commandline.parsing import verbs

HERE = Path(__file__).parent
MODELS: tuple[str, ...] = ("(models)",)
RESULTS: tuple[str, ...] = ("(results)",)
"""Stand for the names of the zoo, and for those in the store, which the script lists when it completes."""
STATUSES = (
    *("ok", "unsupported", "oom", "timeout", "crashed"),
    *("wrong_output", "unstable", "cancelled", "skipped", "failed"),
)
#: Flag, or name of an argument -> the words that it takes, where no parser knows them.
KNOWN: Mapping[str, Iterable[str]] = {
    "--backend": registry.BACKENDS,
    "--precision": ("fp32", "tf32", "fp16", "bf16", "int8", "as_is"),
    "--workload": registry.WORKLOADS,
    "--scenario": registry.SCENARIOS,
    "--tracer": registry.TRACERS,
    "--profiler": registry.TRACERS,
    "--objective": ("latency", "throughput", "energy", "power", "fps"),
    **dict.fromkeys(("--status", "--retry"), STATUSES),
    "--io": ("host", "pinned", "device"),
    "--sharing": ("time_slicing", "pinned", "mps"),
    **dict.fromkeys(("--model", "--models", "--train", "--prior-model", "model", "models", "what"), MODELS),
    **dict.fromkeys(("baseline", "candidate", "result", "results", "local", "remote"), RESULTS),
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's argument."""
    sub.add_argument("shell", choices=SHELLS, help=f"the shell: {', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Print the script of the shell; return 0."""
    from edgescope.cli.main import parser  # it imports this module

    print(SHELLS[args.shell](Commands(parser())), end="")
    return 0


class Commands:
    """Every verb and part with its parser, by its name (`train advise`; '' is the program itself)."""

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self.every = {"": top} | dict(verbs(top))
        pages = sorted(path.stem for path in docs.folder().rglob("*.md"))
        self._known: Mapping[str, Iterable[str]] = {
            **KNOWN,
            "words": (*parts(top), docs.EXIT_CODES),
            "page": (*pages, docs.SCHEMA, docs.FLAGS),
        }

    def known(self, action: argparse.Action) -> tuple[str, ...]:
        """Return the words that may stand for an argument or follow a flag; () for any."""
        if action.choices is not None:
            return tuple(map(str, action.choices))
        names = action.option_strings or [action.dest]
        return next((tuple(self._known[name]) for name in names if name in self._known), ())

    def arguments(self, parser: argparse.ArgumentParser) -> list[tuple[str, ...]]:
        """Return what may stand as an argument, each once; nothing for a parser with parts."""
        found = [] if parts(parser) else [self.known(a) for a in parser._actions if not a.option_strings]
        return [words for words in dict.fromkeys(found) if words]

    def filled(self, shell: str, **more: str) -> str:
        """Return the script of a shell with what it needs to know of the commands."""
        text = (HERE / f"completion.{shell}").read_text(encoding="utf-8")
        filling = {"models": " ".join(models()), **more}
        return re.sub(r"@(\w+)@", lambda found: filling[found[1]], text)


def models() -> list[str]:
    """Return the names of the zoo, read without importing it: that imports numpy."""
    text = (HERE.parent / "models" / "zoo.toml").read_text(encoding="utf-8")
    return re.findall(r"^\[([^.\]]+)\]$", text, re.MULTILINE)


def parts(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the verbs or parts of a parser -> what each does."""
    found = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {one.dest: one.help or "" for action in found for one in action._choices_actions}


def flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the flags of a parser."""
    return [action for action in parser._actions if action.option_strings]


def _quoted(name: str) -> str:
    """Return a command as a script recognises it when its last word is read: `" bench"`, `"train advise"`."""
    return f'"{name}"' if " " in name else f'" {name}"'


# -- bash, and zsh, which runs the same script ---------------------------------------------------------------


def bash(commands: Commands) -> str:
    """Return the script for bash."""
    return commands.filled(
        "bash",
        commands="|".join(_quoted(name) for name in commands.every if name),
        values="\n".join(_values(commands)),
        offers="\n".join(_offers(commands)),
    )


def zsh(commands: Commands) -> str:
    """Return the script for zsh."""
    begin = "autoload -U +X compinit bashcompinit\n(( $+functions[compdef] )) || compinit\nbashcompinit\n"
    return begin + bash(commands)


def _in_bash(words: tuple[str, ...]) -> str:
    return {MODELS: "$models", RESULTS: "$(_edgescope_results)"}.get(words, " ".join(words))


def _values(commands: Commands) -> Iterator[str]:
    """Yield a case for each flag with a value: its words, or an end, where files are offered."""
    places: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, parser in commands.every.items():
        for action in flags(parser):
            for flag in action.option_strings if action.nargs != 0 else ():
                places.setdefault(flag, {}).setdefault(commands.known(action), []).append(name)
    for flag, found in places.items():
        for words, names in found.items():
            where = f'*":{flag}"' if len(found) == 1 else "|".join(f'"{name}:{flag}"' for name in names)
            yield f"    {where}) " + (f'offers="{_in_bash(words)}" ;;' if words else "return 0 ;;")


def _offers(commands: Commands) -> Iterator[str]:
    """Yield two cases for each command, where no value is due: its flags; its parts or known arguments."""
    for name, parser in commands.every.items():
        long = [flag for action in flags(parser) for flag in action.option_strings if flag.startswith("--")]
        words = [*parts(parser), *map(_in_bash, commands.arguments(parser))]
        yield f'        "{name}:-"*) offers="{" ".join(long)}" ;;'
        yield f'        "{name}:"*) offers="{" ".join(words)}" ;;'


# -- fish ----------------------------------------------------------------------------------------------------


def fish(commands: Commands) -> str:
    """Return the script for fish."""
    return commands.filled(
        "fish",
        commands=" ".join(_quoted(name) for name in commands.every if name),
        lines="\n".join(line for name in commands.every for line in _lines(commands, name)),
    )


def _lines(commands: Commands, name: str) -> Iterator[str]:
    parser = commands.every[name]
    here = f"__edgescope_offer {_in_fish(name)}"
    for part, about in parts(parser).items():
        yield f"{here} -f -a {part} -d {_in_fish(about)}"
    for words in commands.arguments(parser):
        yield f"{here} -a {_words_in_fish(words)}"
    for action in flags(parser):
        names = " ".join(
            f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in action.option_strings
        )
        known = commands.known(action)
        value = f" -x -a {_words_in_fish(known)}" if known else " -r" if action.nargs != 0 else ""
        yield f"{here} {names}{value} -d {_in_fish(action.help or '')}"


def _words_in_fish(words: tuple[str, ...]) -> str:
    known = {MODELS: "$__edgescope_models", RESULTS: "(__edgescope_results)"}
    return _in_fish(known.get(words, " ".join(words)))


def _in_fish(text: str) -> str:
    words = text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{words}'"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
