"""Several worker processes that agree on a start and a stop: the answer to a crowded Trial.

A leader (leader.py) starts workers (worker.py), each of which opens the trial's own workload and drives the trial's own
scenario, with a plan whose measured phase begins and ends when all others' does (agreed.py). What passes between them
are lines of JSON (talk.py), rows in files, and a counter in shared memory that nobody waits for (counter.py).
"""
