"""Byte-level BPE: text to tokens and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UnsupportedError
from edgescope.wings.generation import tokenizer
from edgescope.wings.generation.tokenizer import Tokenizer, made, symbols

MADE = {pre: made(300, pre) for pre in tokenizer.PIECES}


@given(st.text(max_size=40), st.sampled_from(sorted(tokenizer.PIECES)))
def test_any_text_comes_back_from_its_tokens(text, pre):
    known = MADE[pre]
    assert known.decode(known.encode(text)) == text.encode(errors="replace").decode()


def _tokens(merges, text, pre="gpt-2"):
    words = [m.replace(" ", "") for m in merges]
    known = Tokenizer([*symbols(), *words], merges, [1] * (256 + len(words)), pre)
    return [known.tokens[t] for t in known.encode(text)]


def test_pairs_merge_in_the_order_of_the_table():
    assert _tokens(["b c", "a b", "a bc"], "abc") == ["abc"]
    assert _tokens(["a b", "b c", "a bc"], "abc") == ["ab", "c"]
    assert _tokens(["a a"], "aaa") == ["aa", "a"]


def test_no_merge_crosses_the_pieces_that_a_rule_cuts():
    two = ["1 2", "12 3"]
    assert _tokens(two, "123") == ["123"]
    assert _tokens(two, "123", "smollm") == ["1", "2", "3"]
    assert _tokens(two, "123", "llama-bpe") == ["123"]
    assert _tokens(["3 4"], "1234", "llama-bpe") == ["1", "2", "3", "4"]


def test_the_cuts_of_known_rules():
    def cut(text, pre):
        return made(259, pre)._cut.findall(text)

    assert cut("it's  42 (x)\n", "gpt-2") == ["it", "'s", " ", " 42", " (", "x", ")", "\n"]
    assert cut("IT'S (x) 42\n", "qwen2") == ["IT", "'S", " (", "x", ")", " ", "4", "2", "\n"]
    assert cut("IT'S\n\n  A", "gpt-2") == ["IT", "'", "S", "\n\n ", " A"]
    assert cut("IT'S\n\n  A", "llama-bpe") == ["IT", "'S", "\n\n", " ", " A"]


def test_made_tokens_are_all_different_and_as_many_as_asked():
    known = made(5000, "qwen2")
    assert len(known.tokens) == len(set(known.tokens)) == 5000
    assert known.tokens[-1] == "<|im_end|>" and known.decode([4999]) == ""


def test_another_kind_of_tokenizer_is_told():
    for facts in (
        {"tokenizer.ggml.model": "llama"},
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "own"},
    ):
        with pytest.raises(UnsupportedError) as error:
            tokenizer.read(facts, "m")
        assert error.value.code == "E-LM-20"
