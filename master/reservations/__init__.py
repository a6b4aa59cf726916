"""Reservations ahead of time: resources promised to users over time (Rayon)."""
