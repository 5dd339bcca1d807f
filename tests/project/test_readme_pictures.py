"""README's first answer and its two pictures are those of the run that is stored beside the script that draws them."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from edgescope.records import Status, Trust

sys.path.insert(0, str(Path(__file__).parents[2] / "website"))
import pictures

ROOT = Path(__file__).parents[2]


def test_the_pictures_are_of_the_stored_run_and_of_what_is_printed_of_it_today():
    assert json.loads((pictures.PICTURES / "made.json").read_text()) == pictures.made()


@pytest.mark.parametrize("name", ["terminal", "page"])
def test_readme_shows_both(name):
    (shown,) = re.findall(rf"!\[[^]]+\]\((\S+/{name}\.png)\)", (ROOT / "README.md").read_text())
    assert (ROOT / shown).read_bytes().startswith(
        b"\x89PNG"
    ) and ROOT / shown == pictures.PICTURES / f"{name}.png"


def test_readme_holds_the_command_and_its_answer_of_eight_lines_whole():
    (told,) = re.findall(r"```console\n\$ (.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    command, _, answer = told.partition("\n")
    assert command == pictures.COMMAND and answer == pictures.text()
    assert len(answer.splitlines()) == 8 and all(len(line) <= 80 for line in answer.splitlines())


def test_the_run_was_clean_and_tells_nothing_of_whose_machine_it_was():
    run = pictures.run()
    assert (run.status, run.verdict.trust) == (Status.OK, Trust.CLEAN)
    folders = re.findall(r'"(/\w+)/', next(pictures.RUN.rglob("result.json")).read_text())
    assert set(folders) <= {"/home", "/proc", "/sys", "/etc"}


def test_another_run_or_another_text_needs_new_pictures(tmp_path, monkeypatch):
    shutil.copytree(pictures.RUN, tmp_path / "run")
    monkeypatch.setattr(pictures, "RUN", tmp_path / "run")
    before = pictures.made()
    path = next((tmp_path / "run").rglob("result.json"))
    path.write_text(path.read_text().replace('"onnxruntime"', '"openvino"'))
    after = pictures.made()
    assert [name for name in before if after[name] != before[name]] == ["run", "terminal", "page"]
