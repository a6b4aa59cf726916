"""A daemon's configuration: declared once; read, shown, written and changed while it runs."""
