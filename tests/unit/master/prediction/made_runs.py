"""Runs with a demand that follows from their settings: a stage that computes, then one that writes."""

from __future__ import annotations

import numpy as np

from master.prediction import Run, Settings

GB = 10**9


def made(input_gb: float, cores: float, noise: float = 0.0, seed: int = 0) -> Run:
    """Computing takes 4 slots a gigabyte and core, writing 2 slots a gigabyte; each slot off by ``noise``."""
    computing, writing = max(2, round(4 * input_gb / cores)), max(2, round(2 * input_gb))
    mean = np.zeros((4, computing + writing))
    mean[0, :computing], mean[0, computing:] = cores, 0.25
    mean[1, computing:] = 80e6
    mean[2, :computing] = 20e6
    mean[3] = np.linspace(GB, GB * (1 + 0.3 * input_gb), computing + writing)
    if noise:
        mean *= np.random.default_rng(seed).uniform(1 - noise, 1 + noise, mean.shape)
    settings = Settings(int(input_gb * GB), cores, 8 * GB)
    return Run(settings, mean, 1.2 * mean, (computing, computing + writing))


def grid(noise: float = 0.0) -> list[Run]:
    """Of sixteen settings, two runs each."""
    sizes, cores = (4, 8, 16, 32), (1, 2, 3, 4)
    return [made(size, n, noise, seed) for size in sizes for n in cores for seed in (0, 1)]
