"""One flag, one meaning: wherever it appears it sets the same name, reads the same kind and says the same."""

import argparse
import re

import pytest

from edgescope.cli.main import parser


def parsers(top, path="edgescope"):
    """Every parser with the words that lead to it."""
    yield path, top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from parsers(sub, f"{path} {name}")


def head(text):
    """What a help text says first, before what is peculiar to one verb."""
    return re.split(r"[,;:(]", text or "")[0].strip()


def flags():
    """Option string -> (verb, action) of each place where it appears."""
    found = {}
    for verb, one in parsers(parser()):
        for action in one._actions:
            for name in action.option_strings:
                if name not in ("-h", "--help", "--version"):
                    found.setdefault(name, []).append((verb, action))
    return found


def meanings(say):
    """Option string -> its different meanings with a verb of each, of those that have several."""
    every = {}
    for name, places in flags().items():
        several = {say(action): verb for verb, action in places}
        if len(several) > 1:
            every[name] = several
    return every


def test_a_flag_sets_the_same_name_everywhere():
    assert meanings(lambda a: a.dest) == {}


def test_a_flag_reads_the_same_kind_everywhere():
    assert meanings(lambda a: (getattr(a.type, "__name__", a.type), a.nargs, type(a).__name__)) == {}


def test_a_flag_says_the_same_everywhere():
    assert all(a.help for places in flags().values() for _, a in places)
    assert meanings(lambda a: head(a.help)) == {}


def test_an_empty_default_is_not_shown_as_brackets():
    helps = [action.help for places in flags().values() for _, action in places]
    assert not [text for text in helps if "()" in text or "(None)" in text]


@pytest.mark.wings
def test_files_are_written_by_one_flag_in_every_verb_that_writes_one():
    assert {verb.split()[1] for verb, _ in flags()["-o"]} == {
        *(
            "anomaly",
            "capacity",
            "demo",
            "explain",
            "gate",
            "layers",
            "offload",
            "optimize",
            "predict",
            "public",
            "record",
            "report",
            "study",
            "trace",
            "train",
            "verify-board",
        ),
    }


def test_no_flag_can_be_shortened():
    assert not any(one.allow_abbrev for _, one in parsers(parser()))
