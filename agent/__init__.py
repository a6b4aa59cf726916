"""The node agent: one per host, it grants access to the host's resources."""
