"""A daemon's configuration: declared once; read, shown, written, and changed at run time."""
