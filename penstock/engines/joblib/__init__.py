"""joblib's batches as CPU monotasks, each in a thread of the program's process.

Started by: the program, which calls :func:`register` and then uses ``with joblib.parallel_config("penstock"):``.
Needs joblib 1.3 or newer. Documented in docs/client.md, "joblib".
"""

from penstock.engines.joblib.backend import NAME, PenstockBackend, register

__all__ = ["NAME", "PenstockBackend", "register"]
