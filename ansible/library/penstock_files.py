"""An Ansible module: files, links and directories of one host as they should be, all in one go.

Ansible's own modules take one file each, and two or three trips to the host for it. Where a role has ten, on a hundred
hosts, these are most of what an installation takes.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

DOCUMENTATION = r"""
module: penstock_files
short_description: Files, links and directories as they should be, in one go
description:
  - Makes, changes and removes what is not as it should be, and nothing else. A file is replaced as a whole.
options:
  files:
    type: list
    elements: dict
    required: true
    description: What there should be, in this order.
    suboptions:
      path: {type: path, required: true, description: Where.}
      state:
        type: str
        choices: [file, link, directory, absent]
        default: file
        description: What. A directory is made with those above it, and removed with what is in it.
      content: {type: str, description: "A file's; otherwise it is among the secrets, or it is empty."}
      once: {type: bool, default: false, description: A file that is there keeps its content.}
      target: {type: str, description: Where a link leads.}
      owner: {type: str, default: root, description: Whose it is.}
      group: {type: str, default: root, description: Of which group.}
      mode: {type: str, description: "In octal; by default 0644, and 0755 for directories."}
  secrets: {type: dict, default: {}, description: Contents that are not shown by path.}
attributes:
  check_mode: {support: full, description: Says what would be done.}
  diff_mode: {support: full, description: All but secrets.}
author: The Penstock authors
"""

RETURN = r"""
changed_paths: {type: list, elements: str, returned: always, description: What was not as it should be.}
"""

_MODES = {"file": "0644", "directory": "0755"}
_HIDDEN = "(secret)\n"


class _Wanted:
    """One of them, as it should be."""

    def __init__(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        self.path = Path(options["path"])
        self.state: str = options["state"]
        self.once: bool = options["once"]
        self.target: str = options["target"] or ""
        self.secret = options["path"] in secrets
        self.content = str(secrets[options["path"]] if self.secret else options["content"] or "")
        self.owner: str = options["owner"]
        self.group: str = options["group"]
        mode: str = options["mode"] or _MODES.get(self.state, "0")
        if set(mode) - set("01234567"):
            raise ValueError(f"{self.path}: mode: {mode!r} is not octal, as 0644 is")
        self.mode = int(mode, 8)

    def after(self) -> str:
        """What it should be, in words."""
        if self.state in {"absent", "link"}:
            return f"link to {self.target}\n" if self.state == "link" else ""
        text = _HIDDEN if self.secret else self.content
        return f"{self.state} {self.owner}:{self.group} {self.mode:04o}\n{text}"

    def before(self) -> str:
        """What it is."""
        try:
            found = self.path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if stat.S_ISLNK(found.st_mode):
            return f"link to {self.path.readlink()}\n"
        directory = stat.S_ISDIR(found.st_mode)
        whose = f"{_name(found.st_uid, pwd.getpwuid)}:{_name(found.st_gid, grp.getgrgid)}"
        text = "" if directory or self.state == "absent" else self._text(self.path.read_bytes())
        return f"{'directory' if directory else 'file'} {whose} {stat.S_IMODE(found.st_mode):04o}\n{text}"

    def _text(self, content: bytes) -> str:
        if self.secret:
            return _HIDDEN if self.once or content == self.content.encode() else "(another secret)\n"
        return self.content if self.once else content.decode(errors="replace")

    def make(self) -> None:
        """As it should be. What is in the way of a file or a link is replaced, but no directory."""
        getattr(self, f"_make_{self.state}")()

    def _make_absent(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def _make_directory(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._belong(self.path)

    def _make_link(self) -> None:
        with tempfile.TemporaryDirectory(prefix=".penstock-", dir=self.path.parent) as near:
            made = Path(near) / "link"
            made.symlink_to(self.target)
            made.replace(self.path)

    def _make_file(self) -> None:
        if self.once and self.path.is_file() and not self.path.is_symlink():
            self._belong(self.path)
            return
        with tempfile.TemporaryDirectory(prefix=".penstock-", dir=self.path.parent) as near:  # for nobody else: 0700
            made = Path(near) / "file"
            with made.open("wb") as file:
                file.write(self.content.encode())
                file.flush()
                os.fsync(file.fileno())
            self._belong(made)
            made.replace(self.path)

    def _belong(self, path: Path) -> None:
        shutil.chown(path, self.owner, self.group)
        path.chmod(self.mode)


def bring(files: list[dict[str, Any]], secrets: dict[str, str], *, check: bool) -> dict[str, Any]:
    """The module's result; with ``check`` nothing is done.

    Raises:
        OSError: it cannot be done.
        LookupError: there is no such user or group.
        ValueError: a mode is none.
    """
    diffs = []
    for wanted in (_Wanted(each, secrets) for each in files):
        before, after = wanted.before(), wanted.after()
        if before != after:
            header = str(wanted.path)
            diffs.append({"before": before, "after": after, "before_header": header, "after_header": header})
            if not check:
                wanted.make()
    paths = [each["after_header"] for each in diffs]
    return {"changed": bool(diffs), "changed_paths": paths, "diff": diffs}


def _name(number: int, look: Any) -> str:
    try:
        return str(look(number)[0])
    except KeyError:
        return str(number)


def main() -> None:
    """The module."""
    from ansible.module_utils.basic import AnsibleModule

    one = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["file", "link", "directory", "absent"], "default": "file"},
        "content": {"type": "str"},
        "once": {"type": "bool", "default": False},
        "target": {"type": "str"},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
        "mode": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list", "elements": "dict", "required": True, "options": one,
                "required_if": [("state", "link", ["target"])],
            },
            "secrets": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )  # fmt: skip
    try:
        result = bring(module.params["files"], module.params["secrets"], check=module.check_mode)
    except (OSError, LookupError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
