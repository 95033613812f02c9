#!/usr/bin/env bash
# The commands of docs/backup.md, as a person runs them: with the stock `nats` CLI.
#
# Owns:     .bin/nats-cli-* in the repository, which git ignores.
# Promises: takes the `nats` in the PATH where there is one; else builds the version below.
# Never:    skips: without the CLI the test itself says that it is skipped, and that is a failure here.
#
# Called by tests/lanes.mk, when the programs are built. It names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=v0.5.1
readonly MODULE=github.com/nats-io/natscli/nats
readonly PLACE="$PWD/.bin/nats-cli-$VERSION"
readonly TEST=lost_bucket::buckets_are_backed_up_and_restored_by_the_commands_of_the_page

fail() { printf 'nats-cli: %s\n' "$*" >&2; exit 1; }

if ! command -v nats >/dev/null; then
    export BERTH_NATS_CLI="$PLACE"
    if [[ ! -x $PLACE/nats ]]; then
        command -v go >/dev/null || fail 'no nats, and no go to build it with: install one of them'
        printf 'nats-cli: building %s@%s into .bin\n' "$MODULE" "$VERSION" >&2
        GOBIN="$PLACE.new" GOFLAGS=-mod=mod go install "$MODULE@$VERSION"
        mv -T "$PLACE.new" "$PLACE"
    fi
fi
# Of the whole workspace, whose features `make test` has built it with.
said=$(cargo test ${CI:+--locked} --quiet --workspace --test integration "$TEST" -- --exact --nocapture 2>&1) \
    || fail "$said"
[[ $said == *'1 passed'* && $said != *skipped:* ]] || fail "$said"
printf 'nats-cli: the commands of docs/backup.md work\n'
