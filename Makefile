# Penstock. `make` alone lists what there is; every target works on a fresh clone.

PYTHON ?= $(firstword $(foreach each,python3 python3.13 python3.12 python3.11,$(shell \
	$(each) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(each))))
VENV := .venv/penstock-stamp
RUN := .venv/bin/python
DASK_OLD := .venv-dask-old/penstock-stamp
DASK_OLD_RUN := .venv-dask-old/bin/python
SPARK := .venv-spark/penstock-stamp
# In a call, its comma would end an argument.
SPARK_EXTRAS := --editable '.[test,spark]'

# Tests start thousands of Python processes: each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Install into an environment: $(1) is its interpreter, $(2) what. uv takes a tenth of pip's processor time, and links
# files that several environments share. It does not read pip's configuration: where it finds no index, pip is asked.
define install
@$(RUN) -m uv pip install --quiet --python $(1) $(2) || \
	{ echo 'uv failed, see above; trying pip'; $(1) -m pip install --quiet --disable-pip-version-check --no-compile $(2); }
endef

.PHONY: help venv venv-dask-old venv-spark wheel image demo test test-host test-pure test-not-pure test-dask test-dask-old test-spark test-vm test-native test-native-measured test-native-unmeasured test-emulated test-measured test-cluster check bench bench-enforcement bench-victims bench-spark-vm bench-mix docs man clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

venv: $(VENV)  ## everything that development needs, in .venv

venv-dask-old: $(DASK_OLD)

venv-spark: $(SPARK)

wheel: | .venv/bin/python  ## the wheel for other environments and hosts, in dist/
	@$(RUN) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/penstock-*.whl

image: | .venv/bin/python  ## the image and the kernel of the tests' virtual machines, in ~/.cache/penstock
	@.venv/bin/python -m tests.vm build --user-mode

demo: $(VENV)  ## real jobs share this host, split statically and through Penstock (INPUT=DIR, DEMO=host)
	@$(RUN) -m demo.dispatch

# Tests that compute and measure no time, of code that starts no daemon.
PURE := tests/property tests/unit/bench tests/unit/docs tests/unit/master tests/unit/research tests/unit/simulator
DASK := $(wildcard tests/integration/test_dask*.py) tests/integration/test_dataset_on_dask.py tests/integration/test_tpch_compare.py
on = @$(RUN) -m pytest -q --dist loadfile --no-loadscope-reorder -n

# On the host most tests wait: three workers, beside the machine, and then beside the tests that compute.
test: $(VENV)  ## this host's tests, and the kernel tests in user mode that measure nothing; not test-measured, test-dask, test-dask-old, test-spark and test-cluster
	@$(RUN) -m tests.beside 0 '$(MAKE) --keep-going test-native-unmeasured test-pure' '$(MAKE) test-not-pure'

# Files with long tests first: in xdist's order, by the number of tests, these were last, and one worker had nothing.
test-host: $(VENV)  ## unit, property, contract and integration tests
	$(on) 2 tests/integration tests/property tests/contract tests/unit

test-pure: $(VENV)
	$(on) 2 $(PURE)

test-not-pure: $(VENV)
	$(on) 3 tests/integration tests/contract tests/unit $(addprefix --ignore=,$(PURE) $(DASK))

test-dask: $(VENV)  ## the Dask engine with real clusters, on the installed distributed
	$(on) 2 $(DASK)

test-dask-old: $(DASK_OLD)  ## the tests of the Dask engine on the distributed of two years ago (the oldest supported)
	$(DASK_OLD_RUN) -m pytest tests/unit/penstock/engines/dask tests/integration/test_dask*.py

test-spark: $(SPARK)  ## the Spark engine on a real standalone cluster (Java 17; 430 MB of pyspark)
	.venv-spark/bin/python -m pytest tests/unit/penstock/engines/spark tests/integration/test_spark*.py

# What needs a virtual machine: $(1) says what is left out without it, $(2) is run with it, $(3) is an option of its
# build. 69: this host cannot have the machine; why was printed. That is a failure where CI=true, and left out elsewhere.
define with_machine
@$(RUN) -m tests.vm build $(3); status=$$?; \
if [ $$status -eq 69 ] && [ "$$CI" != true ]; then \
	echo 'LEFT OUT: $(1) (no virtual machine, see above).'; exit 0; \
elif [ $$status -ne 0 ]; then exit $$status; fi; \
$(2)
endef

test-vm: test-native test-emulated  ## kernel tests, in the project's two virtual machines

native = $(call with_machine,the kernel tests in user mode,$(RUN) -m tests.vm test --user-mode -m "$(1)" -q $(KERNEL),--user-mode)

test-native: $(VENV)  ## kernel tests in the machine in user mode (KERNEL='-k victims': pytest's arguments)
	$(call native,native)

test-native-unmeasured: $(VENV)
	$(call native,native and not measured)

test-native-measured: $(VENV)
	$(call native,native and measured)

test-emulated: $(VENV)  ## those that need Debian's kernel or emulated drives, under QEMU
	$(call with_machine,the kernel tests under QEMU,$(RUN) -m tests.vm test -m emulated -q $(KERNEL),)

test-measured: test-native-measured test-emulated  ## kernel tests that measure what processes get, and all under QEMU: beside nothing else

test-cluster: $(VENV)  ## the playbooks for real: three virtual machines, from nothing to a cluster and back
	$(call with_machine,the cluster of three machines,$(RUN) -m pytest tests/cluster)

check: $(VENV)  ## format, lint, types, direction of imports, purity
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/mypy -p tests.vm -p tests.cluster -p tests.walk -p tests.fakes -m tests.master_invariants
	.venv/bin/lint-imports
	cd ansible && PATH=$(CURDIR)/.venv/bin:$$PATH ansible-lint -q
	$(RUN) -m pytest -q tests/unit/test_house_rules.py

bench: $(VENV)  ## benchmarks against peers
	$(RUN) -m bench

bench-enforcement: $(VENV)  ## do limits bind: measured in the virtual machine, tables in docs/benchmarks/kernel.md
	$(RUN) -m bench.enforcement

bench-victims: $(VENV)  ## the kernel tests of preemption, each watched for a minute afterwards
	$(RUN) -m tests.vm run --drives slow -- \
		env PENSTOCK_CALM_S=60 /opt/venv/bin/python -m pytest -v tests/kernel/test_victims.py

bench-spark-vm: $(VENV)  ## four Spark applications in the virtual machine, elastic against static: three quarters of an hour, goes on where it ended
	$(RUN) -m bench.spark_vm

bench-mix: $(VENV)  ## the same mixed work under plain Linux, systemd slices, a static split, Slurm and Penstock, in the virtual machine: two hours or more
	$(RUN) -m bench.mix

docs: $(VENV)  ## this documentation as a site, in build/docs
	.venv/bin/sphinx-build -W --keep-going -q docs build/docs
	@echo 'build/docs/index.html'

man: $(VENV)  ## the man pages in build/man, as they would be now (make_command.py without --man: those of the package)
	$(RUN) docs/make_command.py --man build/man
	@echo 'man build/man/penstock.1'

clean:  ## forget what was built here; the machine's image stays in ~/.cache/penstock
	rm -rf .venv .venv-dask-old .venv-spark build dist demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV): pyproject.toml | .venv/bin/python
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile uv
	$(call install,$(RUN),--editable '.[dev]')
	@touch $@

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo 'Penstock needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		[ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ] || { \
			echo "$(PYTHON) cannot make virtual environments; as root: apt-get install python3-venv"; exit 1; }; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv; }
	$(PYTHON) -m venv .venv

# Made with the interpreter of .venv, so that there is one to look for. The .gitignore keeps linters and packagers out.
$(DASK_OLD): pyproject.toml | $(VENV)
	$(RUN) -m venv .venv-dask-old
	@echo '*' >.venv-dask-old/.gitignore
	$(call install,$(DASK_OLD_RUN),--editable '.[test]' 'dask[dataframe]==2024.8.*' 'distributed==2024.8.*')
	@touch $@

$(SPARK): pyproject.toml | $(VENV)
	$(RUN) -m venv .venv-spark
	@echo '*' >.venv-spark/.gitignore
	$(call install,.venv-spark/bin/python,$(SPARK_EXTRAS))
	@touch $@
