"""``penstock uninstall``: take from this host what agents have set up and what would outlive them."""
