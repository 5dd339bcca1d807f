"""Which mode of a board is fastest under a power cap, when only a few modes were measured?

python examples/07_every_mode.py

The figures of the table are made by a formula here: put in those of your board, or let `edgescope predict --run`
measure them.
"""

import csv
from itertools import product
from pathlib import Path

import edgescope


def made_up(cores: int, gpu_mhz: int) -> tuple[float, float]:
    """Return (seconds of a minibatch, watts) of a board that does not exist."""
    seconds = max(120 / gpu_mhz, 0.1 + 0.3 / cores)
    return seconds, 4 + 0.4 * cores + 0.004 * gpu_mhz / seconds


profiled = {(2, 300), (4, 300), (12, 300), (2, 900), (8, 900), (2, 1300), (12, 1300)}
with Path("modes.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["cpu_cores", "gpu_hz", "batch", "seconds", "power_w"])
    for cores, gpu in product((2, 4, 8, 12), (300, 600, 900, 1300)):
        figures = made_up(cores, gpu) if (cores, gpu) in profiled else ("", "")
        table.writerow([cores, gpu * 1e6, 16, *figures])

(answer,) = edgescope.predict(table="modes.csv", constraints=["power<=25W"])
for row in answer.prediction.front:
    speed, watts = row["throughput_sps"], row["power_w"]
    print(
        f"{row.name:30} {speed.value:6.1f} samples/s [{speed.lo:.1f}, {speed.hi:.1f}]  {watts.value:5.1f} W"
    )
print("use", answer.pick.name if answer.pick else "no mode: none surely keeps the cap")
