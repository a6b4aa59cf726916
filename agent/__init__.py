"""The node agent: one per host, it opens and closes the gates of the host's resources."""
