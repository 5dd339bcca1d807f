#!/usr/bin/env bash
# DuckDB's read_json rounds a number to a double even where the column is declared as text or as JSON
#
# Software: DuckDB 2.0.1, Python API (python3 3.10 or newer). 1.5.6 and 2.0.0 do the same and round DECIMAL columns
#   too, which 2.0.1 no longer does (DuckDB's issue 24989).
# What one expects: `columns = {ts: 'VARCHAR'}` gives the digits that stand in the file, to be cast later to a type
#   that holds them; a column of type JSON holds the JSON that stands in the file. Neither is a double.
# What happens: a number with a fraction or an exponent becomes a double and is printed anew: digits beyond the 15 to
#   17 of a double are lost, `1.10` becomes `1.1`, `1e2` becomes `100.0`. Whole numbers keep all their digits, however
#   long, so that a column is exact in one row and rounded in the next. A DECIMAL column is exact. Nothing is said.
# Why it matters: times in microseconds since 1970 with a fraction (profilers write them so) come out to 250 ns.
#   Amounts of money, identifiers such as `1.10`, and JSON that is kept to be signed or compared are changed. A cast
#   to DECIMAL after the reading comes too late.
# Seen: 2026-11-27, x86_64 virtual machine:
#       in the file              as VARCHAR              as JSON                 as DECIMAL(38,19)
#       1682725898082228.123     1682725898082228.0      1682725898082228.0      1682725898082228.1230000000000000000
#       12345678901234567.89     1.2345678901234568e+16  12345678901234568.0     12345678901234567.8900000000000000000
#       1.10                     1.1                     1.1                     1.1000000000000000000
#       12345678901234567890123  12345678901234567890123 12345678901234567890123 -
# What to do: declare DECIMAL(p, s) from 2.0.1 on; or read_json_objects, which keeps the text (`->>` on it rounds
#   again); or write such numbers in quotes.
# In edgescope: wings/trace/importers/kineto.py puts starts of a trace in quotes before DuckDB reads them.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
{ python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q duckdb==2.0.1; } >&2 || exit 2
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import sys

import duckdb

FRACTIONS = ("1682725898082228.123", "12345678901234567.89", "1.10")
WHOLE = "12345678901234567890123"

def read(number, kind):
    """The number as DuckDB tells it, of a file that holds it alone."""
    with open("rows.json", "w") as out:
        out.write(f'[{{"v": {number}}}]')
    (row,) = duckdb.sql(f"SELECT v::VARCHAR FROM read_json('rows.json', columns = {{v: '{kind}'}})").fetchall()
    return row[0]

print(f"{'in the file':<24} {'as VARCHAR':<23} {'as JSON':<23} as DECIMAL(38,19)")
rounded = exact = True
for number in FRACTIONS:
    text, json, decimal = (read(number, kind) for kind in ("VARCHAR", "JSON", "DECIMAL(38,19)"))
    print(f"{number:<24} {text:<23} {json:<23} {decimal}")
    rounded &= number not in (text, json)
    exact &= decimal.startswith(number)
text, json = read(WHOLE, "VARCHAR"), read(WHOLE, "JSON")
print(f"{WHOLE:<24} {text:<23} {json:<23} -")
as_described = rounded and exact and text == json == WHOLE
print("as described" if as_described else "changed: numbers kept as text keep their digits, or DECIMAL does not")
sys.exit(0 if as_described else 1)
PY
