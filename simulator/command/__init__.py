"""The commands `penstock simulate` and `penstock paper`."""
