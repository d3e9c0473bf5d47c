# Two commands do everything, set-up included: `make demo` and `make test`.

BUILD := build/release
PROGRAM := $(BUILD)/bin/isentrope

.PHONY: help setup configure demo test test-long test-tsan numerics test-asan format clean

help:
	@echo 'make demo       train and evaluate the length-extrapolation experiment; report in results/demo'
	@echo '                (make demo ARGS=--resume goes on after Ctrl-C)'
	@echo 'make test       build and run every test'
	@echo 'make test-long  the tests that take minutes: many more problems, memory at 65536 keys'
	@echo 'make test-asan  the same under the address and undefined-behaviour sanitizers'
	@echo 'make test-tsan  the core and its threads under the thread sanitizer'
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
	@ctest --test-dir $(BUILD) --output-on-failure -j 2 -LE long

# The table of docs/numerics.md, for this machine.
numerics: configure
	@cmake --build $(BUILD) --target isentrope
	@$(PROGRAM) check --generate 2000 --maxima

test-long: configure
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure -L long

test-asan: setup
	@cmake --preset asan -DPython3_EXECUTABLE="$$(scripts/setup --print)" \
	  -DISENTROPE_TORCH=ON --log-level=NOTICE
	@cmake --build build/asan
	@ctest --test-dir build/asan --output-on-failure -j 2 -LE long

test-tsan: setup
	@cmake --preset tsan -Wno-dev --log-level=NOTICE
	@cmake --build build/tsan --target threads_test row_promises_test
	@ctest --test-dir build/tsan --output-on-failure -R 'threads_test|row_promises_test.*Threads'

format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	@rm -rf build
