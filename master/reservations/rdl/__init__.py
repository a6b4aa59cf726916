"""PURE. The reservation definition language (Rayon §3.1): text or JSON in, a normalized expression out."""

from master.reservations.rdl.calendar import Calendar, Wording
from master.reservations.rdl.expressions import (
    All,
    Any,
    Atom,
    Bundle,
    Expression,
    Order,
    RdlError,
    Request,
    Window,
    atoms_of,
    bounds_of,
)
from master.reservations.rdl.feasible import infeasible
from master.reservations.rdl.json_form import from_json
from master.reservations.rdl.normal import alternatives, normalized
from master.reservations.rdl.recurring import Recurrence
from master.reservations.rdl.text import parse, parse_bundle

__all__ = [
    "All",
    "Any",
    "Atom",
    "Bundle",
    "Calendar",
    "Expression",
    "Order",
    "Recurrence",
    "RdlError",
    "Request",
    "Window",
    "alternatives",
    "atoms_of",
    "bounds_of",
    "from_json",
    "infeasible",
    "normalized",
    "parse",
    "parse_bundle",
    "Wording",
]
