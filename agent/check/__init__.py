"""``penstock check``: what this host can enforce, and the remedy where it cannot."""
