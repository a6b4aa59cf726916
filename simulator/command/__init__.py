"""The command `penstock simulate`."""
