"""The playbook's module for certificates: the files that it makes, when it makes them anew, and the data that it never
prints.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.security.authority import Authority

_FILE = Path(__file__).resolve().parents[3] / "ansible/roles/penstock_ca/library/penstock_certificate.py"
_NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("penstock_certificate", _FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


certificate = _module()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Return the role's options for a node."""
    return {
        "wheel": str(_FILE), "directory": str(tmp_path / "ca"), "title": "Test", "name": "node01", "also": [],
        "master": False, "days": 365, "renew_days": 30,
    }  # fmt: skip


def _issued(options: dict[str, Any]) -> Any:
    return Authority(Path(options["directory"])).find(options["name"])


def test_authority_and_certificate_are_made_once(options: dict[str, Any]) -> None:
    first = certificate.bring(options, _NOW, check=False)
    assert (first["changed"], first["made"]) == (True, True)
    key = Path(first["key"]).read_text()
    again = certificate.bring(options, _NOW + dt.timedelta(days=300), check=False)
    assert (again["changed"], again["made"]) == (False, True)
    assert Path(first["key"]).read_text() == key
    assert again["diff"]["before"] == again["diff"]["after"]
    assert "PRIVATE" not in f"{first}{again}"
    assert Path(first["ca"]).is_file() and Path(options["directory"]).stat().st_mode & 0o077 == 0


def test_one_that_nears_its_end_is_made_anew(options: dict[str, Any]) -> None:
    certificate.bring(options, _NOW, check=False)
    later = _NOW + dt.timedelta(days=340)
    assert certificate.bring(options, later, check=True)["changed"]
    assert _issued(options).left_days(later) < 30, "asked only"
    assert certificate.bring(options, later, check=False)["changed"]
    assert _issued(options).left_days(later) > 360
    assert not certificate.bring(options, later, check=False)["changed"]


def test_one_that_ends_with_its_authority_is_not_made_anew_for_ever(options: dict[str, Any]) -> None:
    certificate.bring(options, _NOW, check=False)
    late = _NOW + dt.timedelta(days=3640)
    assert certificate.bring(options, late, check=False)["changed"]
    assert not certificate.bring(options, late, check=False)["changed"]


@pytest.mark.parametrize("change", [{"also": ["10.0.0.7"]}, {"master": True}])
def test_other_names_are_another_certificate(options: dict[str, Any], change: dict[str, Any]) -> None:
    certificate.bring(options, _NOW, check=False)
    assert certificate.bring(options | change, _NOW, check=False)["changed"]
    found = _issued(options)
    assert set(found.names) == {"node01", *change.get("also", [])} and found.master == change.get("master", False)
    assert not certificate.bring(options | change, _NOW, check=False)["changed"]


def test_asking_on_a_bare_controller_writes_nothing(options: dict[str, Any], tmp_path: Path) -> None:
    result = certificate.bring(options, _NOW, check=True)
    assert (result["changed"], result["made"]) == (True, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [({"wheel": "/nowhere.whl"}, r"penstock_ca_wheel: /nowhere\.whl"), ({"renew_days": 365}, "penstock_ca_renew_days")],
)
def test_an_impossible_request_is_refused_in_one_line(
    options: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    assert certificate._fault(options) == ""
    with pytest.raises(AssertionError, match=said):
        assert certificate._fault(options | change) == ""


def test_an_old_cryptography_is_named_with_the_remedy(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import cryptography

    monkeypatch.setattr(cryptography, "__version__", "41.0.7")
    said = certificate._fault(options)
    assert "41.0.7" in said and "penstock_ca_python" in said and "\n" not in said


def test_an_old_python_on_the_controller_is_named_with_the_remedy(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    said = certificate._fault(options)
    assert "3.10" in said and "penstock_ca_python" in said and "\n" not in said
