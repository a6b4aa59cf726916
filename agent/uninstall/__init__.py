"""``penstock uninstall``: remove from this host the things that agents have set up and that would outlive them."""
