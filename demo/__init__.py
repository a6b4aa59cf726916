"""``python -m demo``: real analytics jobs on this host: all at once, on a static split, and through Penstock."""
