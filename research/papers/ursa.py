"""Ursa's claims, in the order of the paper."""

from __future__ import annotations

from research.papers import ursa_designs, ursa_orderings, ursa_settings, ursa_tables
from research.papers.claims import Claim

_DAGS = "tpch_dags"

CLAIMS: list[Claim] = [
    Claim(name="ursa/executors", where="Ursa §5.1.1, Table 2", run=ursa_tables.table2, needs=_DAGS),
    Claim(name="ursa/deep", where="Ursa §5.1.1, Table 3", run=ursa_tables.table3),
    Claim(name="ursa/placements", where="Ursa §5.1.2, Table 4", run=ursa_tables.table4, needs=_DAGS),
    Claim(name="ursa/oversubscription", where="Ursa §5.1.2, Table 5", run=ursa_tables.table5, needs=_DAGS),
    Claim(name="ursa/network", where="Ursa §5.2", run=ursa_designs.network, needs=_DAGS),
    Claim(name="ursa/links", where="Ursa §5.2, Fig. 6", run=ursa_designs.links, needs=_DAGS),
    Claim(name="ursa/designs", where="Ursa §5.2, Fig. 7", run=ursa_designs.stage_awareness, needs=_DAGS),
    Claim(name="ursa/orderings", where="Ursa §5.2, Table 6", run=ursa_orderings.table6, needs=_DAGS),
    Claim(name="ursa/setting1", where="Ursa §5.3, setting 1, Fig. 8 and 9", run=ursa_settings.setting1),
    Claim(name="ursa/setting2", where="Ursa §5.3, setting 2, Fig. 10", run=ursa_settings.setting2),
]
