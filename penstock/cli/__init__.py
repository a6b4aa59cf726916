"""The `penstock` command. Modules beyond the standard library are imported only by the commands that need them."""
