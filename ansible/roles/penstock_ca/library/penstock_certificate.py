"""An Ansible module: one certificate of the operator's own authority, made, renewed or left as it is.

It runs on the controller, beside the authority's directory, and needs nothing there but what ansible-core brings: the
authority itself (``penstock.security.authority``, which is ``penstock ca``) comes out of the wheel that is being
deployed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

DOCUMENTATION = r"""
module: penstock_certificate
short_description: A certificate of the operator's own small authority
description:
  - Makes the authority if there is none, issues the certificate if there is none for exactly these names, and renews
    it when it nears its end. Otherwise nothing changes. Keys never leave the files that they are written to.
options:
  wheel: {type: path, required: true, description: Penstock's wheel; the authority's code is taken from it.}
  directory: {type: path, required: true, description: "The authority's, for its owner alone."}
  title: {type: str, default: Penstock, description: "The authority's common name, when it is made."}
  name: {type: str, required: true, description: The name that the certificate is called by; it carries it.}
  also: {type: list, elements: str, default: [], description: Further names and addresses that it carries.}
  master: {type: bool, default: false, description: "For a master, which serves; otherwise for a node."}
  days: {type: int, default: 365, description: How long a certificate holds.}
  renew_days: {type: int, default: 30, description: Renewed when it ends within so many days.}
attributes:
  check_mode: {support: full, description: Says what would be made.}
  diff_mode: {support: full, description: Names and days; no keys.}
author: The Penstock authors
"""

RETURN = r"""
made: {type: bool, returned: always, description: Whether the files are there; in check mode they may not be.}
ca: {type: str, returned: always, description: Path of the authority's certificate.}
crl: {type: str, returned: always, description: Path of the list of what was revoked.}
certificate: {type: str, returned: always, description: Path of the certificate.}
key: {type: str, returned: always, description: Path of its key.}
"""

_AUTHORITY_DAYS = 3650
_LEAST_CRYPTOGRAPHY = 42
_REMEDY = "pip install 'cryptography>=42' for the Python that runs Ansible here, or name another in penstock_ca_python"


def bring(options: dict[str, Any], now: dt.datetime, *, check: bool) -> dict[str, Any]:
    """The module's result; with ``check`` nothing is written.

    Raises:
        penstock.security.authority.AuthorityError: it cannot be done; one line.
    """
    from penstock.security.authority import Authority

    authority = Authority(Path(options["directory"]))
    certificate = authority.directory / "issued" / f"{options['name']}.pem"
    result: dict[str, Any] = {
        "ca": str(authority.certificate), "crl": str(authority.revocations),
        "certificate": str(certificate), "key": str(certificate.with_suffix(".key")),
    }  # fmt: skip
    if check and not authority.directory.is_dir():
        return result | {"changed": True, "made": False, "diff": _diff("", _described(options))}
    with nullcontext() if check else _alone(authority.directory):
        before, made = _as_it_is(authority, options, now)
        if not made and not check:
            _make(authority, options, now)
    return result | {
        "changed": not made, "made": certificate.exists(),
        "diff": _diff(before, before if made else _described(options)),
    }  # fmt: skip


def _as_it_is(authority: Any, options: dict[str, Any], now: dt.datetime) -> tuple[str, bool]:
    """What there is, in words, and whether that is what is wanted."""
    if not (authority.directory / "issued" / f"{options['name']}.pem").exists():
        return "", False
    found = authority.find(options["name"])
    said = f"{_role(found.master)} {' '.join(found.names)}, until {found.until:%Y-%m-%d}\n"
    # What ends with the authority itself cannot be made to last longer.
    lasts = found.left_days(now) >= options["renew_days"] or found.until >= authority.until()
    return said, _carries(found, options) and lasts and authority.revocations.exists()


def _make(authority: Any, options: dict[str, Any], now: dt.datetime) -> None:
    if not authority.certificate.exists():
        authority.init(options["title"], _AUTHORITY_DAYS, now)
    certificate = authority.directory / "issued" / f"{options['name']}.pem"
    if certificate.exists():
        # The authority keeps the former one in mind, as it holds on where it was copied to and may have to be revoked.
        fresh = authority.renew(options["name"], now, options["days"])
        if _carries(fresh, options):
            return
        # Nobody has got this one.
        certificate.unlink()
        certificate.with_suffix(".key").unlink(missing_ok=True)
    authority.issue(options["name"], options["also"], options["days"], now, master=options["master"])


def _carries(issued: Any, options: dict[str, Any]) -> bool:
    return set(issued.names) == {options["name"], *options["also"]} and issued.master == options["master"]


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Ansible asks for several hosts at once."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _described(options: dict[str, Any]) -> str:
    names = " ".join(dict.fromkeys([options["name"], *options["also"]]))
    return f"{_role(options['master'])} {names}, for {options['days']} days from now\n"


def _role(master: bool) -> str:
    return "master" if master else "node"


def _diff(before: str, after: str) -> dict[str, str]:
    return {"before": before, "after": after}


def _fault(options: dict[str, Any]) -> str:
    """Why it cannot be done, or not here; empty: it can."""
    days, renew_days, wheel = options["days"], options["renew_days"], options["wheel"]
    if renew_days >= days:
        return f"penstock_ca_renew_days: {renew_days} is not below penstock_ca_days ({days}): each run would renew"
    if not Path(wheel).is_file():
        return f"penstock_ca_wheel: {wheel}: no such file on the controller; `make wheel` builds it in dist/"
    if sys.version_info < (3, 11):  # noqa: UP036 - ansible-core 2.16 runs on 3.10, too
        version = ".".join(map(str, sys.version_info[:2]))
        return f"{sys.executable} is Python {version}; name one of 3.11 or newer in penstock_ca_python"
    try:
        import cryptography
    except ImportError:
        return f"cryptography is missing for {sys.executable}; {_REMEDY}"
    if int(cryptography.__version__.partition(".")[0]) < _LEAST_CRYPTOGRAPHY:
        return f"cryptography {cryptography.__version__} of {sys.executable} is too old; {_REMEDY}"
    return ""


def main() -> None:
    """The module."""
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(
        argument_spec={
            "wheel": {"type": "path", "required": True},
            "directory": {"type": "path", "required": True},
            "title": {"type": "str", "default": "Penstock"},
            "name": {"type": "str", "required": True},
            "also": {"type": "list", "elements": "str", "default": []},
            "master": {"type": "bool", "default": False},
            "days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    if fault := _fault(module.params):
        module.fail_json(msg=fault)
    sys.path.insert(0, module.params["wheel"])
    from penstock.security.authority import AuthorityError

    try:
        result = bring(module.params, dt.datetime.now(dt.UTC), check=module.check_mode)
    except (AuthorityError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
