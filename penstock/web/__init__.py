"""The status page of the daemons: its files, its live events, and the history of the last minutes."""
