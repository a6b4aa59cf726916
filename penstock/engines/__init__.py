"""Existing engines, made to register their work as monotasks or containers: one folder for each integration.

A folder's ``__init__.py`` is the integration's public face. Its docstring says what the integration is, who starts it
and which page documents it.
"""
