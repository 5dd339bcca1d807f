"""Warming up by prompt length: until the last two answers of a length took about as long."""

import pytest

from edgescope.wings.generation import warming
from edgescope.wings.generation.engine import Generated
from edgescope.wings.generation.figures import Answer


def answer(first_ms, token_ms=10.0, tokens=8):
    times = [round((first_ms + token_ms * n) * 1e6) for n in range(tokens)]
    return Answer(0, Generated(times, [1] * tokens, tokens, 5))


def scripted(by_length):
    asked = []

    def ask(prompt, output):
        asked.append((prompt, output))
        seen = sum(p == prompt for p, _ in asked)
        script = by_length[prompt]
        return script[min(seen, len(script)) - 1]

    return ask, asked


def test_each_length_is_asked_until_its_last_two_agree_with_short_answers():
    ask, asked = scripted({8: [answer(300), answer(100), answer(101)], 64: [answer(500), answer(501)]})
    found = warming.warm(ask, [8, 64], 128)
    assert asked == [(8, warming.TOKENS)] * 3 + [(64, warming.TOKENS)] * 2
    assert found.settled and found.first_s > 0


@pytest.mark.parametrize(
    "script",
    [
        [answer(100 * 2**n) for n in range(warming.MOST)],
        [answer(100, token_ms=10 * 2**n) for n in range(warming.MOST)],
    ],
)
def test_what_does_not_settle_in_a_few_answers_says_so(script):
    ask, asked = scripted({8: script, 9: [answer(5)]})
    assert not warming.warm(ask, [8, 9], 3).settled
    assert asked == [(8, 3)] * warming.MOST + [(9, 3)] * warming.FEWEST


def test_on_a_slow_machine_the_fewest_answers_are_all(monkeypatch):
    monkeypatch.setattr(warming, "SECONDS", 0.0)
    ask, asked = scripted({8: [answer(100), answer(300)], 9: [answer(3, tokens=1)]})
    assert not warming.warm(ask, [8, 9], 8).settled
    assert len(asked) == 2 * warming.FEWEST
