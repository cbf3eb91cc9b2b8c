# Every target is idempotent and does its own set-up. `make run` and `make test` are all a newcomer needs.
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin
.DEFAULT_GOAL := help
PROMPT ?= Why is the sky blue?
MAX_TOKENS ?= 96
OCTAVO := build/octavo
# The default model's directory, once `make model` has put it there.
MODEL = $$(.venv/bin/python tools/fetch_default_model.py 2>/dev/null | tail -n 1)

.NOTPARALLEL:
.PHONY: help deps configure build build-all fixtures model run test test-rust test-unit test-python test-sanitize test-clang bench lint format clean

help:  ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

deps:  ## Install what is missing (Debian packages, .venv)
	@tools/install_dependencies.sh build

configure: deps
	@[ -f build/build.ninja ] || cmake --preset release -Wno-dev >build-configure.log 2>&1 || \
	  { cat build-configure.log; echo 'octavo: configuring the build failed, see above' >&2; exit 1; }
	@rm -f build-configure.log

build: configure  ## Build build/octavo
	@cmake --build build --target octavo_cli generate

build-all: configure  ## Build everything, tests and benchmarks too
	@cmake --build build

model: deps  ## Fetch the default model and convert it to a 16-bit checkpoint
	@.venv/bin/python tools/fetch_default_model.py >/dev/null

run: build model  ## Quantize the default model while loading it and answer PROMPT
	@$(OCTAVO) run "$(MODEL)" --quantization int8 -p "$(PROMPT)" --max-tokens $(MAX_TOKENS)

fixtures:
	@[ -d "$${OCTAVO_SHARED:-../shared}/fixtures" ] || { echo "octavo tests: the fixtures are not there: \
	expected $${OCTAVO_SHARED:-../shared}/fixtures (OCTAVO_SHARED may name another folder)" >&2; exit 1; }

test: fixtures test-rust test-sanitize test-python test-unit  ## Run every test

test-unit: build-all  ## Unit tests (ctest)
	@tools/install_dependencies.sh test
	@ctest --test-dir build --output-on-failure -j 2

test-python: build-all model  ## Golden, command-line and memory tests (pytest)
	@tools/install_dependencies.sh test
	@.venv/bin/python -m pytest tests -q

test-rust: deps  ## Unit tests of rust/textkit (cargo)
	@cargo test --manifest-path rust/textkit/Cargo.toml --target-dir build/cargo --release --locked --quiet

test-sanitize: deps  ## Unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@[ -f build/sanitize/build.ninja ] || cmake --preset sanitize -Wno-dev >/dev/null
	@cmake --build build/sanitize --target unit_tests
	@ctest --test-dir build/sanitize --output-on-failure -j 2 -L unit

test-clang:  ## Unit tests built with clang
	@tools/install_dependencies.sh lint
	@[ -f build/clang/build.ninja ] || cmake --preset clang -Wno-dev >/dev/null
	@cmake --build build/clang
	@ctest --test-dir build/clang --output-on-failure -j 2 -L unit

bench: build model  ## Speed and memory of the default model
	@$(OCTAVO) bench "$(MODEL)" --quantization int8

lint: build-all  ## clang-format, clang-tidy, rustfmt, clippy
	@tools/install_dependencies.sh lint
	@git ls-files '*.h' '*.cc' | xargs clang-format-16 --dry-run --Werror
	@git ls-files 'src/*.cc' 'apps/*.cc' | xargs -P 2 -n 4 clang-tidy-16 -p build --quiet
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || \
	  { echo 'octavo lint: rustfmt and clippy are needed (rustup component add rustfmt clippy)' >&2; exit 1; }
	@cargo fmt --manifest-path rust/textkit/Cargo.toml --check
	@cargo clippy --manifest-path rust/textkit/Cargo.toml --target-dir build/cargo --locked -- -D warnings

format:  ## Format the C++ sources in place
	@git ls-files '*.h' '*.cc' | xargs clang-format-16 -i

clean:  ## Remove build outputs
	@rm -rf build
