"""The status page of the daemons: its files, the live events behind it, and the ring of the last minutes."""
