"""Processes: a fresh one for each Trial, a persistent one, and several that agree on a start and a stop.

Several workers answer a Trial of several processes. A leader (leader.py) starts workers (bench/worker.py), each of
which opens the trial's own workload and drives the trial's own scenario, with a plan whose measured phase begins and
ends when all others' does (barrier.py). What passes between them are lines of JSON (pipe.py), rows in files, and a
counter in shared memory that nobody waits for (counter.py).
"""
