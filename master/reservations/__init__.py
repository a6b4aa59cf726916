"""Reservations ahead of time: who is promised how much when (Rayon)."""
