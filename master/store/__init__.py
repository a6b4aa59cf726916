"""The master's storage across restarts: SQLite by default, or any database with an SQLAlchemy URL."""

from master.store.database import Database, StoreError
from master.store.depository import Bounds, Depository, Recorded

__all__ = ["Bounds", "Database", "Depository", "Recorded", "StoreError"]
