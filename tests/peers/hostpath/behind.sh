#!/usr/bin/env bash
# A driver with berth-csi-proxy in front, to be started as one driver:
#
#   behind.sh ENDPOINT NODE DIR PROXY DRIVER [FLAG...]
#
# Owns:     in DIR, the driver's own socket, its process id, and the log of calls on NODE.
# Promises: this process becomes the proxy. The driver listens at DIR/behind-NODE.sock, which
# CSI_ENDPOINT and its flags name. It ends with the proxy, however that ends, and is started again
# when it ends alone. Faults come from DIR/faults-NODE.json.
set -euo pipefail

readonly endpoint=$1 node=$2 dir=$3 proxy=$4
shift 4
readonly behind=$dir/behind-$node.sock

# shellcheck disable=SC2016 # the inner shell's variables
setpriv --pdeathsig KILL bash -c '
    export CSI_ENDPOINT=$2
    while true; do
        # A driver on gocsi does not replace the socket that a killed one has left.
        rm -f "${2#unix://}"
        setpriv --pdeathsig KILL "${@:3}" &
        echo $! >"$1.new" && mv "$1.new" "$1"
        wait $! || true
        sleep 0.1
    done' driver "$dir/driver-$node.pid" "unix://$behind" "$@" &

exec "$proxy" serve --endpoint "$endpoint" --to "unix://$behind" \
    --log "$dir/calls-$node.jsonl" --faults "$dir/faults-$node.json"
