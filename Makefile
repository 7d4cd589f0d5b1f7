# Everything from a fresh clone (Linux, Python 3.11 or newer):
#   make reproduce     the tables and figures of notebooks 00 to 06, 09 and 10
#   make test          the tests
# `make help` lists the other targets. What can be set, as in `make reproduce PRESET=smoke JOBS=1`:

# smoke (minutes), laptop, paper (GPU box), or open (one GPU, no key)
PRESET ?= laptop
# where results go: $(OUTPUTS)/$(PRESET)
OUTPUTS ?= outputs
# notebooks to reproduce, by number, with those that they read from: ONLY="03 04"; empty: all
ONLY ?=
# where `make data` puts PersonalWAB's files, and where it has them from
DATA_DIR ?= data/personalwab
DATA_URL ?= https://github.com/HongruCai/PersonalWAB
DATA_COMMIT ?= 23ff65c4c2288198b4b3d00d835760da2c2ff8e8
# data, recommender, search index, and the modules that hold the official prompts (pwagents.llm.prompts names them)
DATA_FILES := /LICENSE /PersonalWAB/envs/pwab/data /PersonalWAB/envs/pwab/functions/recommender/checkpoint \
  /PersonalWAB/envs/pwab/functions/recommender/data /PersonalWAB/envs/pwab/functions/search/indexes \
  /PersonalWAB/envs/pwab/__init__.py /PersonalWAB/envs/user.py \
  /PersonalWAB/envs/pwab/functions/*.py /PersonalWAB/agents/utils.py /PersonalWAB/agents/chat_react_agent.py \
  /PersonalWAB/agents/gpt_function_calling_agent.py /PUMA/utils.py /scripts/tools/init_interecagent_memory.py
# the environment, made where there is none, and the Python it is made with
VENV ?= .venv
PYTHON ?= python3
# where `make web` serves
PORT ?= 8009
# where `make web-bench` serves
BENCH_PORT ?= 8011
# where `make serve` serves
SERVE_PORT ?= 8010
# what `make figures` writes (png, svg, pdf), and one of matplotlib's style sheets above the usual style, or a file
FORMATS ?= png svg
STYLE ?=
# more options for installing torch, for instance another index
TORCH_FLAGS ?=
# the stamp of a finished environment; empty (READY=) for one you made yourself: it is used as it is
READY ?= $(VENV)/.ready

PRESETS := smoke laptop paper open
ifeq ($(and $(filter 1,$(words $(PRESET))),$(filter $(PRESETS),$(PRESET))),)
  $(error PRESET is "$(PRESET)"; choose one of: $(PRESETS))
endif

ifneq ($(words $(OUTPUTS)),1)
  $(error OUTPUTS is "$(OUTPUTS)"; expected the path of a folder, without spaces)
endif
OUT := $(OUTPUTS)/$(PRESET)
NB := $(OUT)/notebooks
# by name, so that a duplicate (03_benchmark-Copy1.ipynb) is passed over
NOTEBOOKS := $(shell ls notebooks/*.ipynb 2>/dev/null | grep -E '/[0-9]{2}_[a-z0-9_]+\.ipynb$$')
LIBRARY := $(shell find lib/pwagents -name '*.py' -o -name '*.yaml' -o -name '*.csv' -o -name '*.html' -o -name '*.css' -o -name '*.safetensors')
REPRODUCE_FULL := $(patsubst notebooks/%,$(NB)/%,$(NOTEBOOKS))
CHOSEN := $(foreach n,$(ONLY),$(or $(filter $(NB)/$(n)%,$(REPRODUCE_FULL)),\
  $(error ONLY names "$(n)"; expected numbers of notebooks, as in ONLY="03 04")))
# Nothing is trained at open.
IN_PRESET := $(if $(filter open,$(PRESET)),$(filter $(foreach n,00 01 02 03,$(NB)/$(n)%),$(REPRODUCE_FULL)),$(REPRODUCE_FULL))
REPRODUCE := $(or $(CHOSEN),$(filter-out $(NB)/07% $(NB)/08%,$(IN_PRESET)))
EVERYTHING := $(or $(CHOSEN),$(IN_PRESET))
# What reproduce-full changes of some notebooks at laptop, which then run again: what was made before is found, and
# their tables get longer. The other presets have all of it as they are.
FULL_03_benchmark := play: {worlds: [0, 1, 2, 3, 4]}
FULL_04_puma := study: {variants: all, worlds: [5, 6, 7, 8, 9]}
FULL_05_orion_sft := role_play: {scaling: [100, 1600], not_updated: 0.5}
FULL_06_orion_grpo := rl: {methods: [GRPO, PPO], worlds: [5, 6, 7, 8, 9]}
FULL := $(if $(filter laptop,$(PRESET)),$(foreach n,$(basename $(notdir $(EVERYTHING))),$(if $(FULL_$(n)),$(NB)/.full_$(n))))
run = $(VENV)/bin/python -m

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: setup lock lab web web-bench recipes serve test test-slow reproduce reproduce-full figures report papers check lint data clean help \
  preflight models

help: ## list the targets
	@echo "make <target> [PRESET=smoke|laptop|paper|open, now $(PRESET)]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make the environment in .venv (3 minutes, 3 GB; the targets below do it when needed)

# It begins first, since 06 to 08 wait for it and take as long as all others together. At paper 04 is before it:
# 03 has a row of what it trains.
FIRST := $(filter $(if $(filter paper,$(PRESET)),$(NB)/04%) $(NB)/05%,$(REPRODUCE))

reproduce: $(FIRST) $(REPRODUCE) ## run notebooks 00 to 06, 09 and 10 (or ONLY="03 04"), as far as they are not up to date

reproduce-full: $(FIRST) $(EVERYTHING) $(FULL) ## run all notebooks, 03, 04 and 06 in further worlds, all of PUMA, Orion by PPO

preflight: $(READY) ## say what notebooks need (ONLY="03 04": these), what is missing and what brings it, and what they cost
	@$(run) pwagents.preflight --preset $(PRESET) --output-dir $(OUT) $(basename $(notdir $(EVERYTHING)))

models: $(READY) ## name the papers' models, their licenses, and the commands that fetch them
	@$(run) pwagents.preflight --models

figures: $(READY) ## draw all figures again from their stored numbers, as FORMATS (png svg), in STYLE: OUTPUTS/PRESET/redrawn
	@$(run) pwagents.report.redraw $(OUT) --formats $(FORMATS) $(if $(STYLE),--style "$(STYLE)")

report: $(READY) ## make a site of the preset's results, to be opened by double click: OUTPUTS/PRESET/report/index.html
	@$(run) pwagents.report.site $(OUT)

papers: $(READY) ## write PAPERS.md, RESULTS.md and README's picture from the papers' files and outputs/reference
	@$(run) pwagents.report.pages

check: $(READY) ## compare the preset's tables with the papers' numbers and outputs/reference: OK, noise or FAIL
	@$(run) pwagents.check $(OUT)

# What no run of git leaves behind is DATA_DIR itself: a clone that was cut off lies beside it, and is made anew.
data: ## fetch PersonalWAB's published files (CC BY-NC 4.0) into DATA_DIR (data/personalwab): a clone, verified by git
	@echo "The data are PersonalWAB's, by Cai et al. (WWW 2025), under CC BY-NC 4.0 (creativecommons.org/licenses/by-nc/4.0):"
	@echo "name the authors, say what you changed, no commercial use. They hold Amazon reviews, the words of real people."
	@test ! -e "$(DATA_DIR)" || test -d "$(DATA_DIR)/.git" || { echo "$(DATA_DIR) is no clone: move it away" >&2; exit 1; }
	@test -e "$(DATA_DIR)" || { rm -rf "$(DATA_DIR).part" && \
	  git clone --filter=blob:none --no-checkout "$(DATA_URL)" "$(DATA_DIR).part" && \
	  git -C "$(DATA_DIR).part" sparse-checkout set --no-cone $(DATA_FILES) && \
	  git -C "$(DATA_DIR).part" checkout --detach $(DATA_COMMIT) && mv "$(DATA_DIR).part" "$(DATA_DIR)"; }
	@git -C "$(DATA_DIR)" sparse-checkout set --no-cone $(DATA_FILES)
	@git -C "$(DATA_DIR)" restore .

# Many a GPU box has no user but root, as whom JupyterLab starts only when told to.
lab: $(READY) ## open the tour in JupyterLab, beside the other notebooks, and their results in outputs/
	$(run) jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

web: $(READY) ## browse the local web of notebook 09: PORT (8009) of this machine
	@$(run) pwagents.persona2web.site.serve --port $(PORT)

web-bench: $(READY) ## serve the preset's web tasks to any browser agent, with a control API: BENCH_PORT (8011)
	@$(run) pwagents web-bench --preset $(PRESET) --port $(BENCH_PORT)

# A recipe's pins may exclude ours.
recipes: $(READY) ## visit the bench by Playwright and by browser-use, each in an environment of its own
	@for each in playwright==1.65.2 browser-use==0.13.14; do env=$(OUTPUTS)/recipes/$${each%%=*}; \
	  test -e "$$env/.$$each" || { $(PYTHON) -m venv --clear "$$env" && \
	  "$$env/bin/python" -m pip install --disable-pip-version-check -q "$$each" && touch "$$env/.$$each"; } || exit 1; done
	@$(VENV)/bin/python benchmarks/web_recipes.py $(OUTPUTS)/recipes

serve: $(READY) ## serve the preset's tasks to other trainers and harnesses (MCP): SERVE_PORT (8010) of this machine
	@$(run) pwagents.adapters.mcp_server --preset $(PRESET) --port $(SERVE_PORT)

test: $(READY) ## run the tests, a process for each core (10 minutes on 2 cores)
	$(run) pytest -q -n $(CORES) --dist loadfile --no-loadscope-reorder -m "not slow"

test-slow: $(READY) ## run the tests that take longer: peers, large stand-ins, real trainings
	$(run) pytest -q -n $(CORES) --dist loadgroup -m slow

lint: $(READY) ## lint and format check, direction of imports, budgets; notebooks must be stripped of outputs
	$(run) ruff check
	$(run) ruff format --check
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python tests/budgets.py
	$(if $(NOTEBOOKS),$(run) nbstripout --verify --keep-id --extra-keys "metadata.papermill cell.metadata.papermill" $(NOTEBOOKS))

clean: ## remove the results of the preset (the environment and outputs/reference stay)
	@echo "Removing $(OUT)"
	@rm -rf "$(OUT)"

# --- notebooks -------------------------------------------------------------------------------------

# JOBS notebooks run beside each other: one a core, but for the presets paper and open, whose notebooks take a whole
# machine each. Threads of one (where its numbers are not portable, else one): the cores, shared out among the jobs.
CORES ?= $(shell nproc 2>/dev/null || echo 1)
JOBS ?= $(if $(filter paper open,$(PRESET)),1,$(CORES))
MAKEFLAGS += -j$(JOBS)
# A notebook that cannot start, or fails, stops those alone that read from it.
MAKEFLAGS += $(if $(filter reproduce%,$(MAKECMDGOALS)),-k)
THREADS = $(shell echo $$(( $(CORES) > $(JOBS) ? $(CORES) / $(JOBS) : 1 )))
# What a notebook trains beside each other takes all cores, whatever the other jobs do.
run_notebook = OMP_NUM_THREADS=$(THREADS) MKL_NUM_THREADS=$(THREADS) OPENBLAS_NUM_THREADS=$(THREADS) \
  LOKY_MAX_CPU_COUNT=$(CORES) \
  $(run) pwagents.execute --preset $(PRESET) --output-dir $(OUT)

# What a notebook reads: its sections of laptop.yaml and of the preset's file, and the files (by size and time of
# change) of each folder that the last data_dir there, or one in the notebook, names in quotes. Noted again where it changed, so that
# a notebook runs again after a change of its own settings or data alone. (\043 and \x23 are "#".)
sections = all $(if $(filter 05% 06% 07% 08%,$(1)),orion) $(1)
note_inputs = f=$(NB)/.settings/$(1).yaml; mkdir -p $(NB)/.settings && \
  awk -F: -v sections=" $(call sections,$(1)) " '/^[^ \043]/ { ours = index(sections, " " $$1 " ") } ours && !/^ *\043/' \
    params/laptop.yaml params/$(PRESET).yaml > $$f.new && { \
  { sed -nE "s/ +\x23.*//; s/.*data_dir: *[\"']?([^\"',}]*).*/\1/p" $$f.new | tail -1; \
    sed -nE "s/.*(data_dir|REAL)[\\\"' ]*[=:] *[\\]?[\"']([^\\\"']+).*/\2/p" notebooks/$(1).ipynb; } | \
  sed "s|^~/|$$HOME/|" | while read -r folder; do echo "$$folder"; test -z "$$folder" || (cd "$$folder" && \
    find -L . -name '.?*' -prune -o -type f -printf '%p %s %C@\n' | LC_ALL=C sort) 2>/dev/null; done >> $$f.new; \
  cmp -s $$f.new $$f && rm $$f.new || mv $$f.new $$f; }
$(if $(filter reproduce% %.ipynb,$(MAKECMDGOALS)),$(foreach n,$(basename $(notdir $(NOTEBOOKS))), \
  $(shell $(call note_inputs,$(n)))$(if $(filter-out 0,$(.SHELLSTATUS)),$(error Nothing can be written to $(OUT)))))

$(REPRODUCE_FULL): $(NB)/%.ipynb: notebooks/%.ipynb $(NB)/.settings/%.yaml $(LIBRARY) $(READY)
	@$(run_notebook) $*

# Notebooks that read what another one wrote, a line each.
$(NB)/06_orion_grpo.ipynb: $(NB)/05_orion_sft.ipynb
$(NB)/07_ablations.ipynb: $(NB)/06_orion_grpo.ipynb
# One at a time: both add episodes to one file.
$(NB)/08_sensitivity.ipynb: $(NB)/07_ablations.ipynb
$(NB)/10_summary.ipynb: $(NB)/03_benchmark.ipynb $(NB)/04_puma.ipynb $(NB)/05_orion_sft.ipynb $(NB)/06_orion_grpo.ipynb
# The summary has lines of several trainings and worlds, too, where they are made.
$(NB)/10_summary.ipynb: $(if $(filter reproduce-full,$(MAKECMDGOALS)),$(FULL))

$(FULL): $(NB)/.full_%: $(NB)/%.ipynb
	@$(run_notebook) $* --changes '$(FULL_$*)' && touch $@
# One at a time: both add episodes to one file.
$(filter $(NB)/.full_06%,$(FULL)): $(filter $(NB)/.full_05%,$(FULL))
$(filter $(NB)/07%,$(EVERYTHING)): $(filter $(NB)/.full_06%,$(FULL))

# --- environment -----------------------------------------------------------------------------------

# uv where it is found, pip otherwise (or with UV=)
UV = $(shell command -v uv 2>/dev/null)
PIP_INSTALL = $(run) pip install --disable-pip-version-check
INSTALL = $(if $(UV),$(UV) pip install --python $(VENV)/bin/python,$(PIP_INSTALL))
# Only uv knows where to find the CPU build of torch; where there is no uv, pip fetches it.
CPU_TORCH = $(if $(UV),$(UV),$(PIP_INSTALL) -q uv && $(VENV)/bin/uv) pip install \
  --python $(VENV)/bin/python --torch-backend=cpu
LOCKED = $(shell grep -o '^[a-z0-9][^ =]*==' requirements.lock)
TORCH = $(shell grep -o 'torch==.*' requirements.lock)

# torch goes first and alone, so that nothing later brings another build of it: the CUDA build where there
# is a GPU, else the CPU build, or where that cannot be had the build that pip finds. All else comes as
# requirements.lock says, each file checked against its SHA-256 (torch, of which there are many builds, comes by
# its version alone, a comment there); the library is built with the lock's setuptools. A conda environment is taken
# as it is found. An install that was cut off leaves .unfinished behind and is begun anew; the stamp is the last thing
# made. Chromium, for notebook 09 and some tests, is brought where the system has none; where that fails, all else
# goes on without it.
$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is \
	needed, $(PYTHON) is not; name another one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making the environment in $(VENV): about 3 minutes and 3 GB. To be downloaded: $(TORCH) (200 MB; 3 GB \
	with CUDA where there is a GPU) and the packages of requirements.lock ($(words $(LOCKED)), 900 MB)"
	@test -d $(VENV)/conda-meta || $(PYTHON) -m venv $$(test ! -e $(VENV)/.unfinished || echo --clear) $(VENV)
	@touch $(VENV)/.unfinished
	@if nvidia-smi -L >/dev/null 2>&1; then $(INSTALL) $(TORCH_FLAGS) $(TORCH); \
	elif test -z "$(TORCH_FLAGS)" && $(CPU_TORCH) $(TORCH); then :; \
	else echo "Taking the build of torch that pip finds"; $(PIP_INSTALL) $(TORCH_FLAGS) $(TORCH); fi
	@$(INSTALL) --no-deps --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@{ command -v chromium-headless-shell || command -v chromium || command -v google-chrome; } >/dev/null \
	|| $(run) playwright install --only-shell chromium \
	|| echo "No Chromium could be brought: install it, or leave notebook 09 its driver: html" >&2
	@mv $(VENV)/.unfinished $@ && touch $@

# What torch brings by itself, other on each kind of machine, is left out. Versions stay as they are where they
# can: uv keeps those that it finds in its output.
OWN_TO_TORCH := torch|triton|nvidia-|cuda-
lock: $(READY) ## write requirements.lock again after a change of pyproject.toml
	@sed 's/^# torch==/torch==/' requirements.lock > $(VENV)/lock
	@$(or $(UV),$(VENV)/bin/uv) pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url -o $(VENV)/lock pyproject.toml
	@awk '/^[a-z]/ { kept = !/^($(OWN_TO_TORCH))/ } /^torch==/ { print "# " $$1 } kept' $(VENV)/lock > requirements.lock
