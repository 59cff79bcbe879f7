# Each target prepares all it needs in .venv, from any Python >= 3.11 on the PATH. Another one: make test PYTHON=/path/to/python
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python python3.13 python3.12 python3.11 python3.14; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv/bin/python

.PHONY: demo test stress lint clean

demo: .venv/demo.stamp  ## train, test, save and reload a network written for CNTK
	$(VENV) examples/digits.py

test: lint  ## the linter, the type checker and all tests
	$(VENV) -m pytest -n 2

LONGER ?= 100
stress: .venv/test.stamp  ## interrupts and threads, so many times longer than in the tests
	CNTKJAX_STRESS=$(LONGER) $(VENV) -m pytest tests/stress --timeout 0

lint: .venv/test.stamp
	$(VENV) -m ruff check .
	$(VENV) -m mypy

clean:
	rm -rf .venv

$(VENV):
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv found on the PATH: make $(MAKECMDGOALS) PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml | $(VENV)
	$(VENV) -m pip install -q -e '.[examples]'
	@touch $@

.venv/test.stamp: pyproject.toml | $(VENV)
	$(VENV) -m pip install -q -e '.[test]'
	@touch $@
