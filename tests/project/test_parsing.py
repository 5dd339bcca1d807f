"""A mistyped word: one message with the word that was probably meant, exit code 2, no page of usage."""

import argparse

import pytest

from edgescope.cli.main import VERBS, main, parser


def refused(typed, capsys):
    with pytest.raises(SystemExit) as end:
        main(typed)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == "" and "usage:" not in said.err and said.err.count("E-") == 1
    return " ".join(said.err.split())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["benhc", "null"], "E-ARGS-1: no verb is called 'benhc'. Try: edgescope bench"),
        (
            ["bench", "null", "--presicion", "int8"],
            "edgescope bench has no flag --presicion. Try: --precision",
        ),
        (["sweep", "--baches=1,2"], "edgescope sweep has no flag --baches. Try: --batch"),
        (
            ["study", "concurent"],
            "no study is called 'concurent' (anomaly, concurrent, training, nano_table, ladder). Try: edgescope"
            " study concurrent",
        ),
        (
            ["study", "concurrent", "--setpu", "x"],
            "edgescope study concurrent has no flag --setpu. Try: --setup",
        ),
        (["bench"], "the following arguments are required: model. Try: edgescope bench --help"),
        (
            ["bench", "null", "more"],
            "edgescope bench does not take the argument 'more'. Try: edgescope bench --help",
        ),
        (["bench", "null", "--qqqqq"], "has no flag --qqqqq. Try: edgescope bench --help"),
        (["bench", "null", "--constraint", "p99<9ms"], "Try: edgescope optimize ... with --constraint"),
        (["--board", "nano"], "the following arguments are required: VERB. Try: edgescope --help"),
        (["study"], "required: STUDY (known: anomaly, concurrent, training, nano_table, ladder). Try:"),
        (["anomaly"], "required: PART (known: generate, extract, train, evaluate, watch). Try:"),
        (["train"], "required: PART (known: advise, interleave, characterize, data, clips). Try:"),
    ],
)
def test_the_word_that_was_probably_meant_is_named(typed, says, capsys):
    assert says in refused(typed, capsys)


def test_without_a_verb_it_says_which_commands_answer_what(capsys):
    assert main([]) == 2
    said = capsys.readouterr().err
    offered = [words[1] for line in said.splitlines() if (words := line.split())[:1] == ["edgescope"]]
    assert offered == ["doctor", "bench", "optimize", "--help"]
    assert set(offered[:3]) <= set(VERBS) and max(map(len, said.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--backend", "onxruntime"], "Try: --backend onnxruntime\n"),
        (["--backend", "null", "--scenario", "ofline"], "Try: --scenario offline\n"),
        (["--backend", "null", "--retry", "failled"], "Try: --retry failed\n"),
        (["--backend", "null", "--precision", "itn8"], "Try: --precision int8\n"),
        (["--backend", "null", "--workload", "trainig"], "Try: --workload training\n"),
        (["--backend", "null", "--mode", "cpu=0"], "Try: --mode cpus=0\n"),
        (["--backend", "null", "--sharing", "pined"], "Try: --sharing pinned\n"),
        (["--backend", "null", "--io", "pined"], "Try: --io pinned\n"),
        (["--backend", "null", "--option", "delay_s=1"], "Try: --option delay_us=1\n"),
    ],
)
def test_a_mistyped_name_is_refused_with_the_closest(flags, says, capsys, tmp_path):
    assert main(["bench", "null", "--store", str(tmp_path), *flags]) == 2
    assert capsys.readouterr().err.endswith(says)


def test_a_mistyped_model_and_a_mode_of_a_board_are_refused_with_the_closest(capsys, tmp_path):
    flags = ["--store", str(tmp_path)]
    assert main(["bench", "squezenet1_1", *flags]) != 0
    assert "edgescope bench squeezenet1_1" in " ".join(capsys.readouterr().err.split())
    assert main(["--board", "nano", "bench", "null", "--backend", "null", "--mode", "MAXM", *flags]) == 2
    assert capsys.readouterr().err.endswith("Try: --mode MAXN\n")


def test_a_mistyped_device_is_refused_with_the_closest(capsys):
    assert "Try: --device cuda" in refused(["bench", "null", "--device", "cudda"], capsys)


def test_a_mistyped_objective_is_refused_with_the_closest(capsys):
    assert main(["optimize", "null", "--objective", "latancy"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("E-VAR-3") and "Try: --objective latency" in said
    assert said.endswith("Try: --objective latency\n")


def test_a_mistyped_option_is_refused_with_the_closest():
    from edgescope.backends.base import Spec, checked
    from edgescope.errors import UsageError

    with pytest.raises(UsageError, match="Try: --option threads=4"):
        checked("onnxruntime", Spec(options={"thraeds": 4}), {"threads": "how many", "streams": "x"})


def test_every_verb_but_the_live_view_takes_json():
    """What the README says of --json."""
    (verbs,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    without = {
        name
        for name, sub in verbs.choices.items()
        if "--json" not in sub._option_string_actions and name not in ("anomaly", "study", "train")
    }
    assert without == {"monitor", "help", "completion"}
    for verb in ("anomaly", "study", "train"):
        (parts,) = (a for a in verbs.choices[verb]._actions if isinstance(a, argparse._SubParsersAction))
        assert not [n for n, p in parts.choices.items() if "--json" not in p._option_string_actions]
