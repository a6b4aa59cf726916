"""``penstock profile``: show the use of an application's executors, the forecast of the next run, and the errors of
earlier forecasts. The master is queried over HTTP."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from penstock.cli import arguments, profile_view
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status
from penstock.cli.json_output import print_json
from penstock.cli.profile_http import CA, DEFAULT, PROFILES, TOKEN, TOKEN_FILE, MasterHttp, credentials
from penstock.cli.profiles import Application, Entry, Run, compare, with_gaps
from penstock.model.decode_errors import told

T = TypeVar("T")
#: The number of latest runs that are compared with their forecasts.
_COMPARED = 5


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    options = _parse(argv)
    master = MasterHttp(options.master, *credentials(options.ca, options.token_file))
    if options.what == "list":
        listed = master.get(PROFILES)
        if options.json:
            print_json(listed)
        else:
            profile_view.print_list(_read(listed, list[Entry], options.master))
        return 0
    user = options.user or _owner(_read(master.get(PROFILES), list[Entry], options.master), options.application)
    document = master.get(f"/profiles/{quote(user, safe='')}/{quote(options.application, safe='')}")
    application = _read(with_gaps(document), Application, options.master)
    _SHOWS[options.what](application, document, options)
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = arguments.Parser(
        "profile",
        "Show the use of executors, slot by slot, and the predicted use of their application's next run.",
        "list     every application that has run as executors (penstock submit --executors)\n"
        "show     its latest runs, and the forecast of the next one\n"
        "plot     a run over time with its forecast\n"
        "compare  the errors of the forecasts of the latest runs",
    )
    add = parser.add_argument
    add("what", choices=["list", *_SHOWS], metavar="list|show|plot|compare", help="what to show, as below")
    add("application", nargs="?", metavar="APP", help="its name, as given to --application")
    add("--user", metavar="USER", help="its owner (default: you, or the only user with an application of that name)")
    add("--run", metavar="RUN", help="plot: the run, one of those shown (default: the latest)")
    add("--of", choices=["mean", "peak"], default="mean", help="plot: the mean (default) or the peak of each slot")
    add("--svg", type=Path, metavar="FILE", help="plot: write an SVG file instead of characters")
    add("--json", action="store_true", help="print all data as JSON")
    add(
        "--master",
        default=os.environ.get("PENSTOCK_MASTER_HTTP") or DEFAULT,
        metavar="URL",
        help=f"the master's HTTP, http:// or https:// (default: $PENSTOCK_MASTER_HTTP, or {DEFAULT})",
    )
    add("--ca", type=Path, metavar="FILE", help=f"the CA of the master's certificate (default: ${CA}, or the host's)")
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"file with the token that the master requires (default: ${TOKEN_FILE}; or the token itself in ${TOKEN})",
    )
    options = parser.parse_args(argv)
    if options.what != "list" and not options.application:
        raise usage_error(f"{options.what}: name an application; `penstock profile list` lists them")
    if options.what == "list" and options.application:
        raise usage_error(f"list: it takes no application; `penstock profile show {options.application}` shows one")
    if options.what != "plot" and (options.svg or options.run):
        raise usage_error(f"--svg and --run are for plot, not for {options.what}")
    return options


# ---------------------------------------------------------------- output


def _show(application: Application, document: Any, options: argparse.Namespace) -> None:
    if options.json:
        print_json(document)
    else:
        profile_view.print_application(application)


def _plot(application: Application, document: Any, options: argparse.Namespace) -> None:
    run = _chosen(application, options.run)
    forecast = application.before(run)
    if options.svg is not None:
        from penstock.cli.profile_svg import picture

        try:
            options.svg.write_text(picture(application, run, forecast, options.of), encoding="utf-8")
        except OSError as error:
            raise usage_error(f"--svg: {options.svg}: {error.strerror}") from None
    elif options.json:
        print_json({"slot_s": application.slot_s, "resources": application.resources, "run": run, "forecast": forecast})
    else:
        profile_view.print_plot(application, run, forecast, options.of)


def _compare(application: Application, document: Any, options: argparse.Namespace) -> None:
    runs = application.latest()[-_COMPARED:]
    compared = [compare(application, run, told) for run in runs if (told := application.before(run)) is not None]
    if options.json:
        print_json(compared)
    else:
        profile_view.print_compared(application, compared)


_SHOWS = {"show": _show, "plot": _plot, "compare": _compare}


def _chosen(application: Application, name: str | None) -> Run:
    runs = application.latest()
    if not runs:
        raise CommandError(f"no run of {application.application!r} has been recorded yet")
    found = [run for run in runs if name is None or str(run.run) == name]
    if not found:
        known = ", ".join(str(run.run) for run in runs)
        raise CommandError(f"--run: no run {name!r}; known: {known}", status=Status.UNKNOWN)
    return found[-1]


# ---------------------------------------------------------------- the application's owner


def _owner(entries: Sequence[Entry], application: str) -> str:
    """Return the owner of an application: this user, or its only owner.

    Raises:
        CommandError: it does not exist, or several other users have one.
    """
    users = [entry.user for entry in entries if entry.application == application]
    if not users:
        known = ", ".join(dict.fromkeys(entry.application for entry in entries)) or "none yet"
        raise CommandError(f"no run of {application!r} has been recorded; known: {known}", status=Status.UNKNOWN)
    own = _own_name()
    if own not in users and len(users) > 1:
        raise CommandError(f"{application!r} is of several users: {', '.join(users)}; give --user", status=Status.USAGE)
    return own if own in users else users[0]


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _read(document: Any, of: type[T], master: str) -> T:
    try:
        return msgspec.convert(document, of)
    except msgspec.ValidationError as error:
        what = "the application" if of is Application else "its applications"
        raise CommandError(f"{master}: its answer about {what} is invalid: {told(error, of)}") from None
