"""A script that completes verbs, parts, flags and their values in a shell, made from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from edgescope import registry

SHELLS = ("bash", "zsh")
#: Flag -> the names that it takes, where no parser knows them.
NAMES = {
    "--backend": registry.BACKENDS,
    "--scenario": registry.SCENARIOS,
    "--workload": registry.WORKLOADS,
    "--tracer": registry.TRACERS,
}
SCRIPT = """# edgescope: completion of verbs, flags and their values
{zsh}_edgescope() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    case "$before" in
{values}
    esac
    if [ -z "$words" ]; then
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}} " in
{verbs}
        *) words="{top}" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _edgescope edgescope
"""


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for `shell`, one of SHELLS."""
    every = dict(verbs(top))
    known = {flag: list(names) for flag, names in NAMES.items()}
    for one in every.values():
        for action in one._actions:
            known |= {flag: list(action.choices or ()) for flag in action.option_strings if action.choices}
    values = "\n".join(f'    {flag}) words="{" ".join(map(str, names))}" ;;' for flag, names in known.items())
    nested = sorted(every, key=lambda name: -name.count(" "))  # a part before its verb, which matches it too
    cases = "\n".join(f'        "{name} "*) words="{" ".join(_words(every[name]))}" ;;' for name in nested)
    zsh = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return SCRIPT.format(zsh=zsh, values=values, verbs=cases, top=" ".join(_words(top)))


def verbs(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield `bench`, `train`, `train advise` ... with their parsers."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, one in action.choices.items():
                yield f"{name}{word}", one
                yield from verbs(one, f"{name}{word} ")


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Return what may follow a verb: its parts and its flags in their long form."""
    parts = [w for a in parser._actions if isinstance(a, argparse._SubParsersAction) for w in a.choices]
    flags = [_long(a) for a in parser._actions if a.option_strings]
    return [*parts, *flags]


def _long(action: argparse.Action) -> str:
    return next((flag for flag in action.option_strings if flag.startswith("--")), action.option_strings[0])
