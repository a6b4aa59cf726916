"""The name of the program that a command runs."""

from __future__ import annotations

import pytest

from penstock.program_name import name_of


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ("python report.py --day 3", "report.py"),
        ("/usr/bin/python3.11 -u -O /home/eve/report.py", "report.py"),
        ("python -X dev -Wignore -W error report.py", "report.py"),
        ("python --check-hash-based-pycs never report.py -m other", "report.py"),
        ("python -m company.report 3", "company.report"),
        ("python -um company.report 3", "company.report"),
        ("python -mcompany.report", "company.report"),
        ("python -c import_this", ""),
        ("python -Ic import_this report.py", ""),
        ("python", ""),
        ("python -", ""),
        ("python -i", ""),
        ("/opt/venv/bin/papermill report.ipynb", "papermill"),
        ("python .", ""),
        ("./jobs/sort.sh/", "sort.sh"),
        ("", ""),
        ("bash job.sh 3", "job.sh"),
        ("/bin/sh -eu /jobs/sort.sh -c", "sort.sh"),
        ("bash -euo pipefail job.sh", "job.sh"),
        ("bash -O extglob +x -- job.sh", "job.sh"),
        ("bash -c ls", ""),
        ("sh -ec ls", ""),
        ("dash -ce ls", ""),
        ("zsh -c ls job.sh", ""),
        ("fish --command ls", ""),
        ("ksh -s job.sh", ""),
        ("bash --rcfile job.rc", ""),
        ("bash", ""),
        ("env A=1 sort", ""),
        ("/usr/bin/nice -n 5 sort", ""),
        ("ionice sort", ""),
        ("timeout 5 sort", ""),
        ("nohup sort", ""),
        ("time sort", ""),
        ("java -jar job.jar", ""),
    ],
)
def test_a_program_has_the_name_of_its_script_or_module(argv: str, name: str) -> None:
    assert name_of(argv.split()) == name


def test_long_commands_of_python_and_shells_have_no_name() -> None:
    assert name_of(["python", *["-u"] * 30, "report.py"]) == "report.py"
    assert name_of(["python", *["-u"] * 31, "report.py"]) == ""
    assert name_of(["python", "-" + "u" * 255, "report.py"]) == "report.py"
    assert name_of(["python", "-" + "u" * 256, "report.py"]) == ""
    assert name_of(["python", "/long" * 100 + "/report.py"]) == "report.py"
    assert name_of(["bash", "-" + "e" * 255, "job.sh"]) == "job.sh"
    assert name_of(["bash", "-" + "e" * 256, "job.sh"]) == ""
