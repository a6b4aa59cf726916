"""``penstock check``: the limits that this host can enforce, and the remedies for those it cannot."""
