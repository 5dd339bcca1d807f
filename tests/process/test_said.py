"""What a command says on stderr fits the terminal, and what is pasted from it still runs."""

import io
import sys

import pytest

from edgescope.cli.main import main
from edgescope.errors import Message
from edgescope.process import said
from edgescope.report import document as doc
from edgescope.report import terminal

COMMAND = "edgescope sweep --model resnet18.onnx --backend onnxruntime,torch_eager --precision fp32,int8"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def message(fix, words=30):
    return str(Message("E-X-1", "word " * words + "end", evidence="why", effect="Nothing ran", fix=fix))


@pytest.mark.parametrize(
    "fix", ["a shorter sentence", "--batch 4", "words " * 30, "edgescope models; or --x 1"]
)
def test_lines_fit_and_hold_the_same_words(fix):
    lines = said.wrapped(message(fix), 80).splitlines()
    assert max(map(len, lines)) <= 80 and all(line.startswith("  ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(message(fix).split())


def test_a_command_longer_than_the_terminal_has_its_own_line_whole():
    lines = said.wrapped(message(f"{COMMAND}, then compare"), 80).splitlines()
    assert f"  {COMMAND}," in lines and lines[-1] == "  then compare"


@pytest.mark.parametrize("words", range(20))
def test_a_command_that_fits_a_line_is_in_one(words):
    found = said.wrapped(message("edgescope bench 'my model.onnx' --classes 'a, b; c'", words), 80)
    assert "Try: edgescope bench 'my model.onnx' --classes 'a, b; c'" in found.splitlines()[-1]


@pytest.mark.parametrize("words", range(20))
def test_a_card_keeps_a_command_in_one_line_too(words):
    page = doc.Document("", doc.warnings([Message("W-X-1", "word " * words, fix=COMMAND[:60])]))
    assert any(COMMAND[:60] in terminal.painted(line) for line in terminal.lines(page, verbose=True))


def test_the_next_step_is_in_one_line_beside_what_it_does():
    step = f"{COMMAND[:65]}   picks one under your constraints"
    page = doc.Document("", (doc.Pairs((("next", step),), kind="steps"),))
    assert any(COMMAND[:65] in terminal.painted(line) for line in terminal.lines(page, 60))


def test_a_message_on_a_page_hangs_and_a_sentence_does_not():
    for begin, hang in (("W-X-1: ", True), ("", False)):
        page = doc.Document("", (doc.Text(begin + "word " * 30, "warning"),))
        rest = [terminal.painted(line) for line in terminal.lines(page)][1:]
        assert rest and all(line.startswith("  ") is hang for line in rest)


def test_lines_of_a_text_keep_their_indents_and_columns():
    text = "a  b\n    " + "word " * 20
    first, second, third = said.wrapped(text.rstrip(), 80).splitlines()
    assert first == "a  b" and second.startswith("    word") and third.startswith("      word")


def test_it_is_as_wide_as_the_terminal_and_80_columns_elsewhere(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "50")
    said.say("word " * 30)
    assert 70 < max(map(len, capsys.readouterr().err.splitlines())) <= 80
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    said.say("word " * 30)
    assert 40 < max(map(len, screen.getvalue().splitlines())) <= 50


def test_the_command_line_wraps_what_it_refuses(capsys):
    assert main(["bench", f"{'no' * 30}", "--duration", "1s"]) == 2
    found = capsys.readouterr().err.splitlines()
    assert len(found) > 1 and found[0].startswith("E-MODEL-3")
