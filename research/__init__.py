"""Reproduce the papers' claims: ``python -m research``, run from a checkout.

The wheel has no part of it, and nothing that is in the wheel imports it.
"""
