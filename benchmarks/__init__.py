"""How fast it is, on this machine, now: `python -m benchmarks`. Machines are noisy: compare the ratios of one run."""
