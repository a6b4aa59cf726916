"""Engines that people use already, made to register their work as monotasks. Each imports its engine only when used."""
