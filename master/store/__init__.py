"""What the master keeps over restarts: in SQLite by default; any database that SQLAlchemy knows is a URL away."""

from master.store.database import Database, StoreError
from master.store.depository import Bounds, Depository, Overview, Recorded

__all__ = ["Bounds", "Database", "Depository", "Overview", "Recorded", "StoreError"]
