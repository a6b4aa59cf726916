"""Existing engines, made to register their work as monotasks or containers: one folder for each integration.

A folder's ``__init__.py`` is the integration's public face. Its docstring defines the integration, names the process
that starts it, and the page that documents it.
"""
