"""edgescope completion: each shell completes verbs, parts, flags and known values, and starts no program for it."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from edgescope.cli import completion
from edgescope.cli.main import main, parser
from edgescope.commandline.parsing import verbs
from edgescope.metrics import objectives
from edgescope.models import zoo
from edgescope.records import Status
from edgescope.records.trial import PRECISIONS
from edgescope.store.results import Store
from making import result

CASES = [
    ("ben", {"bench"}),
    ("--board nano ben", {"bench"}),
    ("train adv", {"advise"}),
    ("train advise --no-v", {"--no-verify"}),
    ("optimize --obj", {"--objective"}),
    ("bench --backend onnx", {"onnxruntime"}),
    ("bench lenet5 --precision bf", {"bf16"}),
    ("bench --device c", {"cpu", "cuda"}),
    ("bench efficientnet_l", {"efficientnet_lite0"}),
    ("sweep --model efficientnet_l", {"efficientnet_lite0"}),
    ("help exit", {"exit-codes"}),
    ("docs workl", {"workloads"}),
    ("completion zs", {"zsh"}),
    ("compare la", {"latest"}),
]


@cache
def script(shell: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["completion", shell]) == 0
    return said.getvalue()


def program(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def completed(shell: str, typed: str, folder: Path) -> set[str]:
    """What a shell offers for a command line, on a path without any program."""
    words = ["edgescope", *typed.split(" ")]
    asked = f"""PATH=/nowhere
COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}
_edgescope
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ways = {
        "bash": ["--norc", "-c", f"{script('bash')}\n{asked}"],
        "zsh": ["-fc", f"{script('zsh')}\nemulate sh\n{asked}"],
        "fish": ["-c", f"{script('fish')}\nset PATH /nowhere\ncomplete -C {shlex.quote(' '.join(words))}"],
    }
    done = subprocess.run(
        [program(shell), *ways[shell]],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
    )
    assert not done.stderr
    return {line.split("\t")[0] for line in done.stdout.split("\n") if line}


@pytest.mark.wings
@pytest.mark.process
@pytest.mark.parametrize(("typed", "offered"), CASES)
@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_completes_it(shell, typed, offered, tmp_path):
    assert completed(shell, typed, tmp_path) == offered


@pytest.mark.process
@pytest.mark.parametrize("shell", completion.SHELLS)
def test_names_of_stored_results_are_offered(shell, tmp_path):
    for name, place in (("aaaaaa", "edgescope-results"), ("bbbbbb", "other")):
        made = result()
        Store(tmp_path / place).save(result(id_=f"{made.trial.id}-20260101T000000-{name}"))
    assert completed(shell, "show ", tmp_path) >= {"aaaaaa", "latest"}
    assert completed(shell, "compare --store other b", tmp_path) == {"bbbbbb"}


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_of_a_list_the_last_word_is_completed(shell, tmp_path):
    assert completed(shell, "sweep --backend onnxruntime,tens", tmp_path) == {"onnxruntime,tensorrt"}


@pytest.mark.process
@pytest.mark.parametrize("typed", ["bench --backend = tens", "bench --backend=tens"])
def test_a_value_may_follow_an_equals_sign(typed, tmp_path):
    assert {word.rpartition("=")[2] for word in completed("bash", typed, tmp_path)} == {"tensorrt"}


@pytest.mark.process
def test_after_a_flag_with_any_value_files_are_offered(tmp_path):
    assert completed("bash", "bench --duration ", tmp_path) == set()
    assert "-o default" in script("bash")


@pytest.mark.wings
def test_known_words_are_those_of_the_program():
    assert completion.models() == list(zoo.names())
    assert tuple(completion.KNOWN["--precision"]) == PRECISIONS
    assert set(completion.STATUSES) == {status.value for status in Status}
    assert set(completion.KNOWN["--objective"]) <= set(objectives())
    typed = {name for _, one in verbs(parser()) for a in one._actions for name in (*a.option_strings, a.dest)}
    assert set(completion.KNOWN) <= typed


def test_every_verb_and_part_is_in_every_script():
    for shell in completion.SHELLS:
        assert not [name for name, _ in verbs(parser()) if not re.search(rf'[ "]{name}[" ]', script(shell))]
