"""Try the papers' claims: one module with ``CLAIMS`` per paper, and the page of results."""
