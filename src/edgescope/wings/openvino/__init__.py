"""OpenVINO, which reports nothing: its package tells its maker of every import, through a thread that starts a process.

Both would run in the process that is measured. Without the package that does it, OpenVINO has nothing to tell with.
"""

import sys

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
