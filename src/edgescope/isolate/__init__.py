"""Processes: a fresh one for each Trial, a persistent one, and several that agree on a start and a stop.

Several workers run a Trial of several processes. A leader (worker.py) starts workers (bench/worker.py). Each opens
the trial's workload and drives the trial's scenario, with a plan whose measured phase begins and ends with all the
others' (Agreed). They exchange lines of JSON (process/__init__.py), rows in files, and a counter in shared memory,
which nobody waits for (Counter).
"""
