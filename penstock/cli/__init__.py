"""The `penstock` command. Nothing heavier than the standard library is imported before a command needs it."""
