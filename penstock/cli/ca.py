"""``penstock ca``: a small certificate authority of the operator, for TLS between agents and master."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import arguments
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status
from penstock.cli.plain_text import printable
from penstock.model.units import counted

if TYPE_CHECKING:
    from penstock.security.authority import Authority, Issued

_HELP = """usage: penstock ca COMMAND [ARGUMENT…]

A small certificate authority of your own (docs/security.md). Run it on one host that only you use.

  init    create the authority
  issue   create a key and a certificate for a node, or with --master for the master
  renew   replace keys and certificates before they expire
  revoke  make daemons refuse a name's certificates: a lost key, a removed host
  show    list issued certificates with their expiry, and revoked ones

  penstock ca COMMAND --help says more about a command."""
_YEAR_DAYS = 365


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    name = argv[0] if argv else "--help"
    if name in {"-h", "--help"}:
        print(_HELP)
        return 0
    if name not in _COMMANDS:
        raise usage_error(f"unknown command {name[:80]!r}; one of {', '.join(_COMMANDS)}")
    from penstock.security.authority import AuthorityError, NotIssuedError

    try:
        _COMMANDS[name](argv[1:])
    except AuthorityError as error:
        status = Status.UNKNOWN if isinstance(error, NotIssuedError) else Status.FAILED
        raise CommandError(str(error), status=status) from None
    return 0


def _directory() -> Path:
    if os.geteuid() == 0:
        return Path("/etc/penstock/ca")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "penstock/ca"


def _parser(name: str, about: str) -> arguments.Parser:
    parser = arguments.Parser(f"ca {name}", about)
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", default=_directory(), help="the authority's directory; %(default)s"
    )
    return parser


def _parsed(parser: arguments.Parser, argv: list[str]) -> tuple[Authority, argparse.Namespace]:
    from penstock.security.authority import Authority

    options = parser.parse_args(argv)
    return Authority(options.directory), options


def _days(parser: arguments.Parser, default: int | None, text: str) -> None:
    parser.add_argument("--days", type=arguments.count, default=default, metavar="N", help=text)


def _init(argv: list[str]) -> None:
    parser = _parser("init", "Create the authority. Its key, ca.key, stays on this host; copy ca.pem to every host.")
    parser.add_argument("--title", default="Penstock CA", help="the issuer's name in certificates; %(default)s")
    _days(parser, 10 * _YEAR_DAYS, "validity in days; %(default)s")
    authority, options = _parsed(parser, argv)
    authority.init(options.title, options.days, _now())
    print(authority.certificate)


def _issue(argv: list[str]) -> None:
    parser = _parser("issue", "Create a key and a certificate for one host.")
    parser.add_argument("name", metavar="NAME", help="a node's `node` key; for the master, the host in `master`")
    parser.add_argument("--master", action="store_true", help="a server certificate for the master instead of a node's")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME", help="another name or address; repeatable"
    )
    _days(parser, _YEAR_DAYS, "validity in days; %(default)s")
    authority, options = _parsed(parser, argv)
    _print_paths(authority.issue(options.name, options.also, options.days, _now(), master=options.master))


def _renew(argv: list[str]) -> None:
    parser = _parser(
        "renew", "Create new keys and certificates for the same names. Daemons load the files by themselves."
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="the names; default: all")
    parser.add_argument(
        "--within", type=arguments.count, metavar="DAYS", help="only certificates that expire within DAYS days"
    )
    _days(parser, None, "validity in days; default: as before")
    authority, options = _parsed(parser, argv)
    found = [authority.find(name) for name in options.names] or list(authority.issued())
    now = _now()
    for issued in found:
        if options.within is None or issued.left_days(now) < options.within:
            _print_paths(authority.renew(issued.name, now, options.days))


def _print_paths(issued: Issued) -> None:
    print(issued.certificate)
    print(issued.key)


def _revoke(argv: list[str]) -> None:
    parser = _parser(
        "revoke",
        "Add all certificates of these names to the list crl.pem. Copy it to every host, to the path in `tls_crl`, "
        "and reload the daemons: systemctl reload penstock-agent penstock-master.",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="the names; certificates may be issued for them again")
    authority, options = _parsed(parser, argv)
    for name in dict.fromkeys(options.names):
        authority.revoke(name, _now())
    print(authority.revocations)


def _show(argv: list[str]) -> None:
    parser = _parser("show", "List the issued certificates with their names and expiry.")
    parser.add_argument("--json", action="store_true", help="as JSON")
    authority, options = _parsed(parser, argv)
    now, found, revoked = _now(), list(authority.issued()), authority.revoked()
    if options.json:
        document = {
            "ca": str(authority.certificate),
            "until": _day(authority.until()),
            "issued": [_row(issued, now) for issued in found],
            "revoked": [{"name": one.name, "serial": f"{one.serial:x}", "at": _day(one.at)} for one in revoked],
        }
        print(json.dumps(document))
        return
    print(printable(f"{authority.certificate}  until {_day(authority.until())}"))
    for issued in found:
        left = issued.left_days(now)
        ends = f"{counted(round(left), 'day')} left" if left > 0 else "EXPIRED"
        role = "master" if issued.master else "node"
        line = f"{issued.name:<24} {role:<7} until {_day(issued.until)}  {ends:<15} {' '.join(issued.names)}"
        print(printable(line))
    for one in revoked:
        print(printable(f"{one.name or '?':<24} REVOKED since {_day(one.at)}  serial {one.serial:x}"))


def _row(issued: Issued, now: dt.datetime) -> dict[str, object]:
    return {
        "name": issued.name,
        "role": "master" if issued.master else "node",
        "names": list(issued.names),
        "until": _day(issued.until),
        "days_left": round(issued.left_days(now), 2),
        "certificate": str(issued.certificate),
        "key": str(issued.key),
    }


def _day(when: dt.datetime) -> str:
    return when.strftime("%Y-%m-%d")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


_COMMANDS = {"init": _init, "issue": _issue, "renew": _renew, "revoke": _revoke, "show": _show}
