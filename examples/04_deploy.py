"""From a model to a folder that runs it on the device, with its engine alone and a card that says why.

python examples/04_deploy.py
"""

import subprocess
import sys
from pathlib import Path

words = ["--try", "onnxruntime", "--skip", "int8", "--rounds", "1", "--duration", "300ms", "--device", "cpu"]
command = ["optimize", "squeezenet1_1", *words, "--constraint", "memory<=2GB", "--save", "deployed"]
subprocess.run([sys.executable, "-m", "edgescope.cli.main", *command], check=True)

print(*sorted(path.name for path in Path("deployed").iterdir()))
subprocess.run([sys.executable, "deployed/run.py"], check=True)  # imports no edgescope
