"""Where does the time of a query go? A profiler answers; SQL asks its spans.

python examples/06_where_the_time_goes.py [MODEL]
"""

import sys
import tempfile

import edgescope
from edgescope.wings.trace import export

model = sys.argv[1] if len(sys.argv) > 1 else "squeezenet1_1"
trial = edgescope.Trial(model=model, backend="onnxruntime", batch=4, warmup=0.2, min_s=0.3, max_s=0.3)
with tempfile.TemporaryDirectory() as store:
    traced = edgescope.trace(trial, store=store)  # clean first, then under the best profiler here
print(traced)
for _, account in traced.accounts:
    for operator in account.operators[:3]:
        print(f"  {operator.name:45} {operator.count:6} x {operator.total_ns / operator.count / 1e3:8.1f} us")
    print(export.query(account.trace, "SELECT kind, count(*) AS spans FROM spans GROUP BY ALL ORDER BY kind"))
