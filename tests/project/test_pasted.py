"""Commands that are printed to be pasted: a user's path, model or name is one word of them, whatever is in it."""

import re
import shlex
from pathlib import Path

import pytest

from edgescope.report import sweep
from edgescope.wings.remote import errors
from edgescope.wings.remote.address import Address
from edgescope.wings.tensorrt import engine_file
from making import result

SOURCE = Path(engine_file.__file__).parents[1]
NASTY = 'it\'s $(touch pwned); `id` "x" & y'
#: A command of ours, or of the shell, that is followed by something filled in without quoting.
COMMAND = re.compile(
    r"""(?:edgescope\ (?:bench|list|sweep|report|recommend|--board)|["'\s:](?:rm|cp|mv|ssh)\ (?:-\S+\ )*)
        [^"'\n{]*\{(?!shlex)(?P<what>[^}\n]*)\}""",
    re.VERBOSE,
)
#: What is filled in and cannot hold anything but a name of edgescope's own.
OURS = {
    "close[0]",
    "names()[0]",
    "board",
    "asked",
    "_target(address)",
    "len(titles)",
    "program!r",
    "name",
    "target",
    "result.machine.id",
}


def test_an_engines_facts_are_words_of_the_command_that_rebuilds_it():
    facts = engine_file.EngineFacts(
        model=NASTY,
        onnx_sha256="0" * 64,
        tensorrt="10.3",
        compute_capability="8.7",
        program=NASTY,
        precision=NASTY,
    )
    words = shlex.split(engine_file.rebuild(facts))
    assert words[:5] == ["edgescope", "bench", NASTY, "--backend", NASTY]
    assert words[words.index("--precision") + 1] == NASTY


def test_a_study_is_one_word():
    (line,) = (x for x in sweep.following([result()], NASTY) if "recommend" in x)
    assert NASTY in shlex.split(line)


@pytest.mark.parametrize("user", ["", "me;id"])
def test_a_board_is_one_word(user):
    where = Address("nano;id", user=user, port=22)
    words = shlex.split(errors._target(where))
    assert words == ["-p", "22", f"{user}@nano;id" if user else "nano;id"]


def test_no_message_fills_an_unquoted_word_into_a_command():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for match in COMMAND.finditer(path.read_text()):
            if match["what"] not in OURS:
                found.append(f"{path.relative_to(SOURCE)}: {match[0]}")
    assert found == [], "\n".join(found)
