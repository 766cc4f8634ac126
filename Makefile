# Everything needs Python >= 3.11 and make, nothing else. PYTHON=python3.12 make ... chooses another one.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
STAMPS = $(VENV)/.installed
WHOLE = --numprocesses auto --dist worksteal --cov --cov-fail-under=95

.PHONY: demo test whole lint types bench gpu gallery notebooks lab clean

demo: $(STAMPS)-core ## the PagedAttention paper's Figure 2: a table, and figure2.png
	$(BIN)/kvfrag figure2

test: $(STAMPS)-dev ## all tests on all cores, with coverage; the GPU part's in Triton's interpreter; PYTEST_ARGS='tests/test_x.py' runs a part
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),$(WHOLE))

whole: $(STAMPS)-dev ## the tests that take minutes: whole traces beside the reference; KVFRAG_TRACES=folder
	$(BIN)/python -m pytest -m whole --numprocesses auto --dist worksteal

lint: $(STAMPS)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)-dev
	$(BIN)/mypy

bench: $(STAMPS)-dev ## engine against the token-stepped reference, and reading 27 million rows; KVFRAG_TRACES=folder for the real trace
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_traces.py

gpu: ## on a machine with a GPU, torch and triton: tests, check and bench on the device, within 200 s -> gpu/results/
	$(PYTHON) -m gpu.suite gpu/logs/*.jsonl

gallery: $(STAMPS)-dev ## every kind of picture, drawn again: docs/gallery/, docs/architecture.svg
	$(BIN)/python docs/make_gallery.py
	$(BIN)/python docs/make_architecture.py

notebooks: $(STAMPS)-dev ## run all notebooks again and save what they print and draw
	$(BIN)/python notebooks/execute.py

lab: $(STAMPS)-notebooks ## JupyterLab on the notebooks, with everything installed; LAB='--no-browser --port 9000' are options for it
	$(BIN)/jupyter lab $(LAB) notebooks

clean:
	rm -rf $(VENV) build *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvfrag needs Python >= 3.11: PYTHON=python3.12 make")'
	$(PYTHON) -m venv $(VENV)

$(STAMPS)-core: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) .
	touch $@

$(STAMPS)-notebooks: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) '.[notebooks,gpu]'
	touch $@

$(STAMPS)-dev: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) '.[dev,gpu]'
	touch $@
