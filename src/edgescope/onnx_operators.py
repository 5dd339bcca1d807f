"""Which ONNX operators, ONNX Runtime's own among them, do a network's arithmetic, and what each computes in."""

from __future__ import annotations

#: Operators that do most of a network's arithmetic, including the names that the runtime's rewriting gives them.
FLOATING = {
    *("Conv", "FusedConv", "NhwcConv", "NhwcFusedConv", "ConvTranspose", "ConvTransposeWithDynamicPads"),
    *("DeformConv", "Gemm", "FusedGemm", "GemmFastGelu", "MatMul", "FusedMatMul", "TransposeMatMul"),
    *("FusedMatMulActivation", "SparseToDenseMatMul", "Einsum", "Attention", "MultiHeadAttention"),
    *("GroupQueryAttention", "PackedAttention", "PackedMultiHeadAttention", "RNN", "GRU", "LSTM"),
}
INTEGER = {
    *("QLinearConv", "ConvInteger", "QLinearMatMul", "QGemm", "MatMulInteger", "MatMulIntegerToFloat"),
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention"),
}
"""Operators that multiply int8, with any output type."""
PACKED = {"MatMulNBits": 4, "MatMulBnb4": 4, "GatherMatMulNBits": 4, "QMoE": 4}
"""Operators whose weights have a few bits -> how many, where the operator's `bits` does not say."""
HEAVY = FLOATING | INTEGER | set(PACKED)
#: The profile's key for a tensor's type.
KINDS = {
    **{"float": "fp32", "float16": "fp16", "bfloat16": "bf16", "double": "fp64"},
    **{"int8": "int8", "uint8": "int8"},
}


def computes_in(operator: str, element: str, bits: int = 0) -> str:
    """Return the precision of an operator whose first tensor is of type `element`; `bits` are those of its weights.

    An operator that takes integers and is not one that multiplies them computes in none of the precisions of a network.
    """
    if operator in PACKED:
        return f"int{bits or PACKED[operator]}"
    if operator in INTEGER:
        return "int8"
    return KINDS.get(element, "fp32")
