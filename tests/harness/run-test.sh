#!/bin/sh
# Runs what cargo has built: the runner in .cargo/config.toml.
#
# As root, a test binary runs in a mount namespace of its own: its mounts are in no namespace that
# another program of the host makes meanwhile, and so tests that share a host do not hold each
# other's releases. Mounts of the host still arrive (slave). Anything else runs as it is.
# BERTH_TEST_NAMESPACE=host leaves a test in the host's namespace.
case $1 in
    */deps/*) ;;
    *) exec "$@" ;;
esac
if [ "$(id -u)" != 0 ] || [ "$BERTH_TEST_NAMESPACE" = host ] || ! unshare --mount true 2>/dev/null
then
    exec "$@"
fi
lock=${TMPDIR:-/tmp}/berth-tests-releases.lock
exec sh "$(dirname "$0")/enter-namespace.sh" "$lock" slave /none "$@"
