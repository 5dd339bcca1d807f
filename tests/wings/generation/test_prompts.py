"""Prompts: of an exact length, the same for one seed, and different from the first token on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.generation import prompts
from edgescope.wings.generation.prompts import Prompts

VOCABULARY: dict[str, int] = {}


def encode(text):
    return [VOCABULARY.setdefault(word, len(VOCABULARY)) for word in text.split()]


@given(number=st.integers(0, 10**6), length=st.integers(1, 3000), seed=st.integers(-5, 5))
def test_a_prompt_has_its_length_and_is_the_same_again(number, length, seed):
    made = Prompts(encode, seed).tokens(number, length)
    assert len(made) == length == len(Prompts(encode, seed).words(number, length).split())
    assert made == Prompts(encode, seed).tokens(number, length)


def test_neighbours_differ_from_the_first_token_on():
    source = Prompts(encode)
    firsts = [source.tokens(number, 8)[0] for number in range(300)]
    assert len(set(firsts)) == 300


def test_prompts_that_begin_alike_part_within_a_sentence():
    source = Prompts(encode)
    seen = {source.tokens(number, 64) for number in range(2000)}
    assert len(seen) == 2000


def test_shared_prompts_are_one():
    source = Prompts(encode, shared=True)
    assert source.tokens(0, 50) == source.tokens(77, 50) and source.words(1, 9) == source.words(2, 9)


def test_an_engine_that_shows_no_tokens_has_words_alone():
    source = Prompts(lambda text: None)
    assert source.tokens(3, 10) == () and len(source.words(3, 10).split()) == 10


def test_sentences_are_the_text():
    found = prompts.sentences()
    assert "".join(found).split() == prompts.text().split()
    assert len(found) > 50 and all(len(s.split()) < 40 for s in found)


@pytest.mark.parametrize("seed", [1, 2])
def test_another_seed_begins_elsewhere(seed):
    assert Prompts(encode, seed).tokens(0, 5) != Prompts(encode).tokens(0, 5)
