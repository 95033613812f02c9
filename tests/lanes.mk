# All tests, in lanes beside each other: most tests wait, so one lane leaves a machine idle.
#
#   make -f tests/lanes.mk --jobs=2
#
# `make test` calls it, with everything built, and then `tests/again`: it tries a failed test once
# more, alone, and decides. The lanes print into each other, line by line.
# The longest lanes come first. `rest` has every test binary that is called `it`.

CARGO_TEST := cargo test $(if $(CI),--locked --no-fail-fast) --workspace

LANES := integration docker bus chaos

# What is not ours: a lane where PEERS is set, since their tools are fetched first.
PEER_LANES := $(patsubst tests/peers/%.sh,peer-%,$(wildcard tests/peers/*.sh))

# Tests at once in each lane.
TEST_THREADS ?= $(shell echo $$((3 * $$(nproc) / 2)))

.PHONY: all rest peers $(LANES) $(PEER_LANES)

all: integration rest $(if $(PEERS),peers) bus chaos docker

peers: $(PEER_LANES)

# A container that starts has a copy of each mount of the host for a moment. An agent sees it, and
# tries its unmount again: so not beside tests that count tries.
docker: integration rest $(if $(PEERS),peers)

# Cargo and rustdoc would look for the job server of make, which is not open to them.
unexport MAKEFLAGS MFLAGS

export RUST_TEST_THREADS := $(TEST_THREADS)

# The whole workspace is named in each lane, so that all have the same features: nothing is built
# again.
$(filter-out chaos,$(LANES)):
	tests/lane $@ $(CARGO_TEST) --test $@ -- $(TEST_FLAGS)

rest:
	tests/lane $@ $(CARGO_TEST) --lib --bins --test it -- $(TEST_FLAGS)

# What chaos finds is never luck: another run has other interleavings, and its success excuses nothing.
chaos:
	$(CARGO_TEST) --test $@ -- $(TEST_FLAGS) </dev/null

$(PEER_LANES): peer-%:
	BERTH_NATS_SERVER="$$(deploy/nats/get-nats-server)" tests/peers/$*.sh
