# Each target prepares all it needs in .venv, from any Python >= 3.11 on the PATH. Another one: make test PYTHON=/path/to/python
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python python3.13 python3.12 python3.11 python3.14; do \
	$$p -c '$(SUITABLE)' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv/bin/python
unexport PYTHONDONTWRITEBYTECODE  # or each process compiles anew what it imports
# A module's tests stay in one process: what they prepare is prepared once. Examples in docstrings, the shortest, are last.
PYTEST := $(VENV) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=30 --durations-min=5

.PHONY: demo docs smoke coverage test thorough test-browser test-ports test-gpu stress random-graphs chains lint check-wheel check-jax clean

demo: .venv/demo.stamp  ## train, test, save and reload a network written for CNTK
	$(VENV) examples/digits.py

docs: .venv/test.stamp  ## the site, in build/docs; all code in it is run, which takes three minutes the first time
	$(VENV) -m pip install -q -e '.[docs]'
	$(VENV) docs/site/build.py

smoke: .venv/test.stamp  ## one quick test of every part, in a minute once its programs are in the cache
	$(PYTEST) -q @tests/smoke.txt

coverage: .venv/test.stamp  ## which statements the tests run, processes that they start included
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-fail-under=96

test: lint  ## the linter, the type checker and the tests, but for the long ones of `make thorough`
	$(PYTEST) @tests/deselected.txt

thorough: lint  ## all tests: also of the benchmarks, and long campaigns of killed workers and quantized training
	$(PYTEST)

test-browser: .venv/test.stamp  ## `cntkjax view` and the site in Chromium, which has to be installed; a minute
	$(VENV) -m pip install -q -e '.[browser,docs]'
	$(VENV) -m pytest tests/viewer/test_browser.py tests/docs/test_site_browser.py

test-ports: .venv/test.stamp  ## models ported to PyTorch and Keras 3, which get an environment of their own
	$(VENV) -m venv .venv/ports
	.venv/ports/bin/python -m pip install -q "jax[cpu]" "keras>=3.15" numpy pytest "safetensors>=0.4" "torch==2.13.*"  # a +cpu wheel, where pip finds one
	CNTKJAX_PORTS_PYTHON=.venv/ports/bin/python $(VENV) -m pytest tests/porting

test-gpu: .venv/test.stamp  ## everything on the GPU against the CPU; where there is none, it says so and rehearses on the CPU
	@! command -v nvidia-smi >/dev/null || $(VENV) -m pip install -q "jax[cuda12]"
	CNTKJAX_TEST_GPU=all JAX_NUM_CPU_DEVICES=2 $(VENV) -m pytest tests/gpu --timeout 0

LONGER ?= 100
stress: .venv/test.stamp  ## interrupts and threads, so many times longer than in the tests
	CNTKJAX_STRESS=$(LONGER) $(VENV) -m pytest tests/stress --timeout 0

random-graphs: .venv/test.stamp  ## programs that nobody wrote, in other forms and on CNTK 2.7, so many times more than in the tests
	CNTKJAX_RANDOM_GRAPHS=$(LONGER) $(VENV) -m pytest -s tests/random_graphs --timeout 0

chains: .venv/test.stamp  ## how large programs of deep networks become: chains of every operation, and of pairs; some hours
	CNTKJAX_CHAINS=1 $(VENV) -m pytest tests/engine/lower/test_chains.py --timeout 0

lint: .venv/test.stamp
	$(VENV) -m ruff check .
	MYPY_NUM_WORKERS=2 $(VENV) -m mypy

check-wheel: .venv/test.stamp  ## a wheel and an sdist, used in new environments of each Python that is installed
	$(VENV) -m pip install -q build
	$(VENV) .ci/check_wheel.py

check-jax: .venv/test.stamp  ## a smoke set of tests on the oldest and the newest jax, and on a pre-release if there is one
	$(VENV) .ci/check_jax.py

clean:
	rm -rf .venv

$(VENV):
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 with venv found on the PATH: make $(MAKECMDGOALS) PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml | $(VENV)
	$(VENV) -m pip install -q -e '.[examples]'
	@touch $@

.venv/test.stamp: pyproject.toml | $(VENV)
	$(VENV) -m pip install -q --no-compile -e '.[test]'  # a third of it is ever imported, and compiled then
	@touch $@
