"""Run a list of Trials: skip what is stored, order, cool down, resume, reuse workers."""
