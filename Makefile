# The commands of this repository. `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# A fresh rustup puts cargo where only a new login shell looks. Users other than root have no sbin.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:/usr/local/sbin:/usr/sbin:/sbin

# Where everything is to be built from the lock file alone.
CARGO_LOCKED := $(if $(CI),--locked)

section = @printf '\n==> %s\n' '$(1)'

# One thing after the other, also under `make -j`: what is printed is read from top to bottom.
.NOTPARALLEL:

SETUPS := setup-demo setup-lint setup-test setup-peers setup-chaos setup-bench setup-dist \
	setup-dist-test

.PHONY: help demo demo-unprivileged build lint test test-all test-peers test-drivers chaos storm bench dist test-dist test-alerts last-release \
	last-release-packages oldest-rust nats-server setup-build $(SETUPS)

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-demo nats-server build ## run a volume's whole life on this machine, narrated
	@BERTH_NATS_SERVER="$$(deploy/nats/get-nats-server)" deploy/demo/run.sh

# Needs root, to become that user.
demo-unprivileged: setup-demo nats-server build ## the same, as a user who is not root
	$(call section,the demo as an unprivileged user)
	@BERTH_NATS_SERVER="$$(deploy/nats/get-nats-server)" deploy/demo/unprivileged

build: setup-build ## build every program into target/debug
	$(call section,build)
	cargo build $(CARGO_LOCKED) --workspace --bins

lint: setup-lint ## check formatting, and clippy with warnings denied
	$(call section,formatting)
	cargo fmt --all --check
	$(call section,clippy)
	cargo clippy $(CARGO_LOCKED) --workspace --all-targets -- -D warnings

# Test binaries that run beside each other: most tests wait for conditions.
TEST_LANES ?= 2

# The programs come before the tests: tests that start them find them built. CI goes on after a
# failure: what it says once is all that can be learnt from it.
#
# PEERS=beside runs also what `make test-peers` runs, in a lane of its own.
test: setup-test $(if $(PEERS),setup-peers) nats-server lint build last-release ## run every check and every test
	$(call section,build the tests)
	cargo test $(CARGO_LOCKED) --workspace --no-run
	$(call section,tests)
	@rm -rf target/lanes; code=0; \
	$(MAKE) --no-print-directory -f tests/lanes.mk --jobs=$(TEST_LANES) \
		$(if $(CI),--keep-going) PEERS=$(PEERS) TEST_FLAGS=$(TEST_FLAGS) || code=$$?; \
	tests/again && exit $$code

# Once for each release, for tests of an upgrade. CI needs its packages later, and builds them now.
last-release: setup-test
	$(call section,programs of the last release)
	tests/integration/last-release/build $(if $(CI),packages)

# Where the toolchain at hand is that one, every build is this check.
oldest-rust: setup-build ## build every program with the oldest Rust that Cargo.toml states
	$(call section,oldest Rust)
	@wanted=$$(sed -nE 's/^rust-version = "(.*)"/\1/p' Cargo.toml); \
	case "$$(cargo --version)" in \
		"cargo $$wanted."*) echo "it is the toolchain at hand: $$(cargo --version)"; $(MAKE) build ;; \
		*) found=$$(rustup toolchain list | grep -oE "^$$wanted\.[0-9]+-[^ ]+" | head -n 1); \
			[[ -n $$found ]] || { echo "install it: rustup toolchain install $$wanted" >&2; exit 1; }; \
			cargo "+$$found" check --locked --workspace --bins --target-dir target/oldest-rust ;; \
	esac

# Much longer: every point of every flow under every fault, and the tests that take longest.
test-all: export BERTH_FAULTS := all
test-all: TEST_FLAGS := --include-ignored
test-all: test ## the same, with nothing sampled and the longest tests

# Not part of `make test`: what it holds us against is fetched first.
test-peers: setup-peers nats-server build ## hold it against what is not ours: csi-sanity, a client in Python
	@$(MAKE) --no-print-directory -f tests/lanes.mk peers

# One of those lanes, by itself.
test-drivers: setup-peers nats-server build ## run it with CSI drivers that others wrote
	@$(MAKE) --no-print-directory -f tests/lanes.mk peer-drivers

# A seed says which system, which operations and which faults; four in a row are one and three
# servers with one and two replicas of each service. Needs root, for the mounts.
chaos: setup-chaos nats-server build ## random operations and faults: SECONDS=600 SEED=1
	$(call section,chaos)
	@BERTH_CHAOS_SECONDS=$(or $(SECONDS),600) BERTH_CHAOS_SEED=$(SEED) \
	cargo test $(CARGO_LOCKED) --quiet -p berth-chaos --test chaos -- --nocapture

# Two schedulers of the documentation share a fleet, and everything is killed in turn.
storm: setup-chaos nats-server build ## two schedulers in a storm of kills: SECONDS=600 SEED=1
	$(call section,storm)
	@cargo build $(CARGO_LOCKED) --quiet --workspace --examples
	@BERTH_STORM_SECONDS=$(or $(SECONDS),600) $(if $(SEED),BERTH_STORM_SEED=$(SEED)) \
	cargo test $(CARGO_LOCKED) --quiet -p berth-conformance --test it -- storm --nocapture

# What is measured is what a user runs: release builds, each a process of its own.
BENCH_PROGRAMS := berth-bench berth-claim berth-plugin-registry berth-volumewatcher berth-gc \
	berth-node-agent berth-csi-dev berth-fleet

# 15 minutes, with BENCH=quick three; mounting needs root. PART=comparisons takes 25,
# PART=scale up to an hour (a million volumes, 10 000 agents); neither runs unless it is named.
# Says what has changed against the rows kept in docs/bench.json. KEEP=1 keeps the new rows there.
bench: setup-bench nats-server ## measure: claims beside raw writes and a bare service, mounts, size
	$(call section,release build)
	cargo build $(CARGO_LOCKED) --release $(addprefix -p ,$(BENCH_PROGRAMS)) --bins
	$(call section,measure)
	target/release/berth-bench run $(if $(filter quick,$(BENCH)),--quick) $(if $(KEEP),--keep) \
		$(addprefix --part ,$(PART))

# PROFILE=dev takes what `make build` has built.
PROFILE ?= release

dist: setup-dist nats-server ## packages, tarball and images, into dist/: PROFILE=release
	$(call section,dist)
	deploy/dist/build $(PROFILE)

# Needs root: it makes a host of namespaces, with a systemd of its own, and a Docker engine.
test-dist: setup-dist-test dist last-release-packages ## install the packages on a bare host, upgrade under load, remove
	$(call section,test dist)
	deploy/dist/test
	deploy/dist/guide
	deploy/dist/upgrade
	deploy/compose/test

last-release-packages: setup-dist
	$(call section,packages of the last release)
	tests/integration/last-release/build packages

test-alerts: setup-dist-test nats-server build ## run alert rules and dashboard in a Prometheus
	$(call section,alerts and dashboard)
	@BERTH_NATS_SERVER="$$(deploy/nats/get-nats-server)" deploy/prometheus/test

nats-server: ## find or fetch a nats-server that is new enough
	$(call section,nats-server)
	@deploy/nats/get-nats-server

# Before anything is built: installs what is missing, or prints the command that does.
$(SETUPS): setup-%:
	@deploy/setup $*

setup-build:
	@deploy/setup
