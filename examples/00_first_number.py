"""How fast is this model here, and may the number be believed?

python examples/00_first_number.py
"""

import edgescope

trial = edgescope.Trial(
    model="efficientnet_lite0", backend="onnxruntime", precision="int8", min_s=0.5, max_s=2
)
result = edgescope.run(trial)

print("status    ", result.status.value, result.reason or "")
print("verdict   ", result.verdict.trust.value)
print("latency   ", result.metrics["latency_p50_s"])
print("outputs   ", result.verification.detail if result.verification else "not verified")
