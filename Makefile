# `make train` and `make test` are all a newcomer needs: each makes .venv if there is none.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: train test check docs clean
train: $(READY)          ## train the tiny model on the Python standard library's sources, on this computer's processor
	$(BIN)/warpwright train

test: $(READY)           ## run the tests
	$(BIN)/python -m pytest

check: $(READY)          ## lint and type-check
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(READY)           ## make docs/coverage.md anew: the tests run and record what they cover
	$(BIN)/python -m pytest --record-forms $(VENV)/forms
	$(BIN)/warpwright ptx coverage --tested $(VENV)/forms > docs/coverage.md

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Warpwright needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:                   ## remove what make made
	rm -rf $(VENV)
