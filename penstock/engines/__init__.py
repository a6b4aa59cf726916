"""Existing engines, made to register their work as monotasks. Each module imports its engine only when it is used."""
