# make demo   the main job on real input, about a minute
# make quick    the tests that start no process and train no system, about a minute
# make test     everything CI runs
# make nightly  security, and what takes long: the five systems, endurance, and scripts in interpreters of their own
# make dist   what is uploaded, in dist/: the source and a wheel with the tag of a manylinux
# One virtual environment, made once; constraints.txt holds the tested versions.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Tests that run at once, more than two cores: many of them wait. 0 runs them in one process.
JOBS   ?= 3
DIST   := dist

.PHONY: demo quick test nightly security sbom lint types docs site matrix bench bench-feed bench-workloads accuracy dry-run gpu dist clean

$(READY): pyproject.toml constraints.txt hatch_build.py src/hotloop/_fast.c src/hotloop/_hooks.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/hotloop demo tcn_state

quick: $(READY)
	$(BIN)/python -m pytest --quick -m 'not gpu and not alone and not nightly' -n $(JOBS) --dist loadfile \
		--ignore tests/workloads --ignore tests/benchmarks

# compileall: where PYTHONDONTWRITEBYTECODE is set, each process that a test starts would compile hotloop anew.
test: lint types $(READY)
	$(BIN)/python -m compileall -q src tests
	$(BIN)/python -m pytest -m 'not gpu and not alone and not nightly' -n $(JOBS) --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m 'alone and not gpu and not nightly'

nightly: security $(READY)
	HOTLOOP_TESTS_COLD=1 $(BIN)/python -m pytest -m 'not gpu and not alone' -n $(JOBS) --dist loadfile
	$(BIN)/python -m pytest -m 'alone and not gpu'

# Asks the package index about known faults of what is installed; nothing else here needs a network.
security: $(READY)
	$(BIN)/bandit --quiet --recursive src --configfile pyproject.toml
	$(BIN)/pip-audit --local --skip-editable --progress-spinner off

# A bill of materials of the environment, CycloneDX.
sbom: $(READY)
	$(BIN)/cyclonedx-py environment --output-file sbom.json $(VENV)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# The reference pages that are derived from the code.
docs: $(READY)
	$(BIN)/python docs/generate.py

# The documentation as pages with a search, in build/site/VERSION; a warning or a link to nowhere fails it.
site: docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs \
		build/site/$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# The core suite on each Python and release of torch that hotloop names, those that are on this machine.
matrix: $(READY)
	$(BIN)/python benchmarks/matrix.py

# Benchmarks report, tests check: nothing here fails on a slow machine. Run them on a quiet one.
bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/in_process.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/recording_size.py
	$(BIN)/python benchmarks/watch.py

# The feeding library against its peers, each in an environment of its own, in about 15 minutes.
bench-feed: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pillow
	PYTHONPATH=src $(BIN)/python benchmarks/feed/run.py

# The training systems as found, after their guides, cured: a few minutes each on two cores.
bench-workloads: $(READY)
	$(BIN)/python benchmarks/workloads.py tcn_state
	$(BIN)/python benchmarks/workloads.py landmarks
	$(BIN)/python benchmarks/workloads.py bev

accuracy: $(READY)
	$(BIN)/python benchmarks/accuracy/run.py

# Each system at full size without a GPU: parameters, memory, one update; about two minutes.
dry-run: $(READY)
	for system in tcn_state landmarks bev spikevid heads; do \
		$(BIN)/python workloads/$$system/train.py --scale full --dry-run || exit 1; done

# On a machine with an NVIDIA GPU and its own torch: no environment is made, the one at hand is used.
gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu $$(grep -rl --include='test_*.py' 'mark.gpu' tests)
	PYTHONPATH=src $(PYTHON) benchmarks/gpu/run.py --out $${OUT:-benchmarks/results}
	PYTHONPATH=src $(PYTHON) benchmarks/gpu/systems.py --race --observe --out $${OUT:-benchmarks/results}

# The source, and a wheel built from it for this Python. The tag is the oldest manylinux that has its symbols.
dist: $(READY)
	rm -rf $(DIST)
	$(BIN)/python -m build --no-isolation --outdir $(DIST)/built
	PATH="$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir $(DIST) $(DIST)/built/*.whl
	mv $(DIST)/built/*.tar.gz $(DIST) && rm -r $(DIST)/built
	$(BIN)/twine check --strict $(DIST)/*

clean:
	rm -rf $(VENV) build dist src/*.egg-info hotloop-runs
