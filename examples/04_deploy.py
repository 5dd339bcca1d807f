"""How does a model become a folder that runs it on the device?

The folder needs its engine alone; a card in it says why this variant was chosen.

python examples/04_deploy.py
"""

import subprocess
import sys

import edgescope

best = edgescope.optimize(
    "squeezenet1_1",
    constraints=["memory<=2GB"],
    backend=["onnxruntime"],
    exclude=[{"precision": "int8"}],
    budget=10,
    device="cpu",
    min_s=0.3,
    max_s=0.3,
    setup=edgescope.Setup(tell=print),
)
print(best)
folder = best.save("deployed")
if folder is not None:
    print(*sorted(path.name for path in folder.iterdir()))
    subprocess.run([sys.executable, str(folder / "run.py")], check=True)  # imports no edgescope
