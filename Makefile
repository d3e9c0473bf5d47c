# Two commands do everything, set-up included: `make demo` and `make test`.

BUILD := build/release
PROGRAM := $(BUILD)/bin/isentrope

.PHONY: help setup configure demo test test-asan format clean

help:
	@echo 'make demo       train and evaluate the length-extrapolation experiment; report in results/demo'
	@echo '                (make demo ARGS=--resume goes on after Ctrl-C)'
	@echo 'make test       build and run every test'
	@echo 'make test-asan  the same under the address and undefined-behaviour sanitizers'
	@echo 'make clean      remove the build'

setup:
	@scripts/setup

configure: setup
	@cmake --preset release -DPython3_EXECUTABLE="$$(scripts/setup --print)" \
	  -DISENTROPE_TORCH=ON --log-level=NOTICE

demo: configure
	@cmake --build $(BUILD) --target programs
	@$(PROGRAM) extrapolate --corpus data/king-james.txt --output results/demo $(ARGS)

test: configure
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure -j 2

test-asan: setup
	@cmake --preset asan -DPython3_EXECUTABLE="$$(scripts/setup --print)" \
	  -DISENTROPE_TORCH=ON --log-level=NOTICE
	@cmake --build build/asan
	@ctest --test-dir build/asan --output-on-failure -j 2

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	@rm -rf build
