#!/usr/bin/env bash
# benchmark_app's averages as JSON hold one layer of the network: the input
#
# Software: OpenVINO 2026.4.1, its Python benchmark_app (python3 3.10 or newer, x86_64 or aarch64).
# What one expects: `-report_type average_counters -json_stats` writes the layers that `-report_type average_counters`
#   writes as CSV.
# What happens: the JSON has one node, the first; it is an input, NOT_RUN, and the total is "0.000". Each layer was put
#   into a list of its own, as if it were a request, and the first list is written.
# Why it matters: the file is well formed and says that the network takes no time. Whoever adds up layers gets 0.
# Seen: 2026-11-28, two cores of an x86_64 virtual machine:
#       CSV: 7 layers, 5 of them executed; JSON: 1 layer, 0 of them executed, total 0.000 ms
# What to do: `-report_type detailed_counters -json_stats`, which writes all layers of each request.
# In edgescope: wings/trace/importers/engines.py refuses the file and names that flag.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q openvino==2026.4.1 numpy==2.4.6; } >&2 || exit 2
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import numpy as np
import openvino as ov
from openvino import opset13 as op

x = op.parameter([1, 3, 64, 64], np.float32, name="x")
weights = op.constant(np.ones((8, 3, 3, 3), np.float32))
net = op.softmax(op.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1]), 1)
ov.save_model(ov.Model([net], [x], "net"), f"{sys.argv[1]}/net.xml")
PY
for form in "" -json_stats; do
  "$folder/venv/bin/benchmark_app" -m "$folder/net.xml" -d CPU -t 1 -nireq 1 -nstreams 1 -hint none \
    -report_type average_counters $form -report_folder "$folder" > "$folder/log" || { cat "$folder/log" >&2; exit 2; }
done
"$folder/venv/bin/python" - "$folder" <<'PY'
import csv
import json
import sys

name = f"{sys.argv[1]}/benchmark_average_counters_report"
rows = [row for row in csv.DictReader(open(f"{name}.csv"), delimiter=";") if row["layerName"] != "Total"]
report = json.load(open(f"{name}.json"))["avg_performance"]
ran = [sum("EXECUTED" in str(s) for s in found) for found in
       ([row["execStatus"] for row in rows], [node["status"] for node in report["nodes"]])]
print(f"CSV: {len(rows)} layers, {ran[0]} of them executed; "
      f"JSON: {len(report['nodes'])} layer, {ran[1]} of them executed, total {report['total_real_time']} ms")
as_described = ran[0] > 0 and len(report["nodes"]) == 1 and ran[1] == 0
print("as described" if as_described else "changed: all layers are there")
sys.exit(0 if as_described else 1)
PY
