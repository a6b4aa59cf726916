"""``python -m demo``: real analytics jobs on this host, once with cores split statically, once through Penstock."""
