#!/bin/sh
# Runs what cargo has built: the runner in .cargo/config.toml.
#
# As root, a test binary runs in a mount namespace of its own. A namespace that another program
# makes meanwhile has no copy of its mounts, so parallel tests do not delay each other's releases.
# Mounts of the host still arrive (slave). Any other program runs in the host's namespace.
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
