"""What did another machine measure? Its results open on any laptop: no engine is imported.

python examples/02_read_a_store.py [STORE]
"""

import sys
from pathlib import Path

from edgescope import Measured, Store

store = Store(Path(sys.argv[1] if len(sys.argv) > 1 else "edgescope-results"))
for result in store.results():
    p50 = result.metrics.get("latency_p50_s")
    shown = f"{p50.value * 1e3:.2f} ms" if isinstance(p50, Measured) else f"none: {result.reason}"
    print(f"{result.trial.model:20} {result.trial.label:30} {result.verdict.trust.value:10} {shown}")
