#!/usr/bin/env bash
# A Relu after a MatMul keeps ONNX Runtime from its int4 kernel; Sigmoid, Tanh or Gelu do not
#
# Software: ONNX Runtime 1.32.0, CPU provider, default options; its MatMulNBitsQuantizer with quant_format=QDQ; ONNX
#   1.23.2 (python3 3.10 or newer).
# What one expects: DequantizeLinear (int4, in blocks) + MatMul is fused to MatMulNBits when a session is made; that
#   is what the format is for (pull requests 21362 and 27769). Layers that are equal in the file are run alike.
# What happens: where a Relu or a Clip (Relu6) follows, it is not fused: the weights are unpacked to fp32 by a
#   DequantizeLinear in each inference, and the product runs in fp32. A layer without an activation, or with another
#   one (Sigmoid, Tanh, Gelu, LeakyRelu, Elu), is fused. A network of Linear + Relu has int4 in its last layer alone.
#   Nothing is said. The same quantiser's other format, QOperator, has MatMulNBits in all of them.
# Why it matters: one expects one precision throughout. Speed, memory and rounding (MatMulNBits may round activations
#   to int8, the fp32 product does not) differ from layer to layer, and a change of the activation changes them. What
#   is measured as int4 on such a file is mostly fp32 with more work.
# Seen: 2026-11-27, x86_64 virtual machine, three Linear of 64 x 64 with an activation between:
#       QDQ       Relu     : DequantizeLinear FusedGemm DequantizeLinear FusedGemm MatMulNBits
#       QDQ       Clip     : DequantizeLinear DequantizeLinear Gemm Clip Gemm Clip MatMulNBits
#       QDQ       Sigmoid  : MatMulNBits Sigmoid MatMulNBits Sigmoid MatMulNBits
#       QDQ       Tanh     : MatMulNBits Tanh MatMulNBits Tanh MatMulNBits
#       QDQ       Gelu     : MatMulNBits Gelu MatMulNBits Gelu MatMulNBits
#       QOperator Relu     : MatMulNBits Relu MatMulNBits Relu MatMulNBits
#       weights unpacked in 3 inferences of QDQ with Relu: 6 times
# What to do: quant_format=QuantFormat.QOperator for ONNX Runtime; look at the session's optimized_model_filepath.
# In edgescope: backends/ort/backend.py names the precision by the kernels that ran, "mixed (...)" here.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q onnxruntime==1.32.0 onnx==1.23.2 \
  onnx_ir==1.1.0 numpy==2.4.6; } >&2 || exit 2
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import json
import logging
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

logging.disable(logging.CRITICAL)
LAYERS = 3

def net(activation):
    """Three Linear with an activation between them."""
    random, nodes, arrays, source = np.random.default_rng(0), [], {}, "x"
    for i in range(LAYERS):
        arrays[f"w{i}"] = (random.standard_normal((64, 64)) * 0.2).astype(np.float32)
        arrays[f"b{i}"] = random.standard_normal(64).astype(np.float32)
        nodes += [helper.make_node("MatMul", [source, f"w{i}"], [f"m{i}"], name=f"matmul{i}"),
                  helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], name=f"add{i}")]
        source = f"a{i}"
        if i < LAYERS - 1:
            given = [source, "low", "high"] if activation == "Clip" else [source]
            nodes.append(helper.make_node(activation, given, [f"r{i}"], name=f"act{i}"))
            source = f"r{i}"
    if activation == "Clip":
        arrays |= {"low": np.float32(0), "high": np.float32(6)}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", source))
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

def packed(form, activation):
    """The network with weights of int4, as the quantiser of ONNX Runtime writes it."""
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, quant_format=form)
    quantiser = MatMulNBitsQuantizer(net(activation), algo_config=config)
    quantiser.process()
    return quantiser.model.model.SerializeToString()

def session(file, options):
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])

def optimised(form, activation):
    """The operators that the session runs."""
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = "optimised.onnx", 3
    session(packed(form, activation), options)
    ran = [node.op_type for node in onnx.load("optimised.onnx").graph.node]
    print(f"{form.name:<9} {activation:<9}: {' '.join(ran)}")
    return ran.count("MatMulNBits")

def unpacked(inferences):
    """How often a session with Relu unpacks weights."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    one = session(packed(QuantFormat.QDQ, "Relu"), options)
    for _ in range(inferences):
        one.run(None, {"x": np.ones((1, 64), np.float32)})
    with open(one.end_profiling()) as events:
        kinds = [e["args"].get("op_name") for e in json.load(events) if e["name"].endswith("_kernel_time")]
    return kinds.count("DequantizeLinear")

few = [optimised(QuantFormat.QDQ, name) for name in ("Relu", "Clip")]
all_of_them = [optimised(QuantFormat.QDQ, name) for name in ("Sigmoid", "Tanh", "Gelu")]
other = optimised(QuantFormat.QOperator, "Relu")
times = unpacked(3)
print(f"weights unpacked in 3 inferences of QDQ with Relu: {times} times")
as_described = few == [1, 1] and {*all_of_them, other} == {LAYERS} and times == 3 * (LAYERS - 1)
print("as described" if as_described else "changed: layers with a Relu are fused, or others are not")
sys.exit(0 if as_described else 1)
PY
