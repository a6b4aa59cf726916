"""Benchmarks; ``python -m bench`` runs all. Each module here has ``main() -> int`` and runs on its own, too."""
