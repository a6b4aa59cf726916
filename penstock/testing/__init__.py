"""Test doubles for tests of frameworks and of Penstock itself; a running system uses none of them."""
