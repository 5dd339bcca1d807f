"""What Ctrl-C leaves of each verb's work, as the verb says it."""

import pytest

from edgescope import registry
from edgescope.cli.main import VERBS, main

RESUMES = {"demo", "optimize", "sweep", "recommend", "predict", "capacity", "train", "study", "anomaly"}


@pytest.mark.wings
@pytest.mark.parametrize("verb", VERBS)
def test_only_verbs_that_go_on_say_so(verb, monkeypatch, capsys):
    typed = {
        "bench": ["null"],
        "optimize": ["null"],
        "capacity": ["null", "--constraint", "p50<1s", "--client-rate", "1"],
        "compare": ["a", "b"],
        "gate": ["a"],
        "energy": ["a"],
        "show": ["latest"],
        "record": ["-o", "x.zip"],
        "study": ["concurrent"],
        "train": ["advise", "lenet5"],
        "anomaly": ["extract", "videos", "features"],
        "layers": ["lenet5"],
        "trace": ["lenet5"],
        "completion": ["bash"],
    }

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry.verb(verb), "run", interrupted)
    assert main([verb, *typed.get(verb, [])]) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("I-STOP-1: interrupted.")
    assert ("goes on" in said) == (verb in RESUMES)
    assert "resumes" not in said
