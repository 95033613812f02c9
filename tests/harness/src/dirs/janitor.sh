# Removes the directories of a test process once the process has ended.
#
# Reads lines `+ DIR` and `- DIR` until the process that writes them has ended. Then, for each
# directory that was added and not struck out: kills the processes that name it in their command
# line or have their root in it (containers), unmounts, detaches loop devices, and deletes. A
# directory with a mount that cannot be unmounted stays, and a line says so.
trap '' HUP INT TERM
set -f
remaining=
while read -r sign dir; do
    others=
    for entered in $remaining; do [ "$entered" = "$dir" ] || others="$others $entered"; done
    remaining=$others
    [ "$sign" = - ] || remaining="$dir$remaining"
done

mounts() { # the newest first: it may cover an older one
    awk -v dir="$1" '$5 == dir || index($5, dir "/") == 1 { print $5 }' /proc/self/mountinfo | tac
}

kill_users() { # fails when there was none to kill
    killed=
    for process in $(ls /proc | grep -E '^[0-9]+$'); do
        grep -qsF "$1" "/proc/$process/cmdline" ||
            awk -v dir="$1" '$5 == "/" && index($4, dir) { found = 1 } END { exit !found }' \
                "/proc/$process/mountinfo" || continue
        kill -KILL "$process"
        killed=yes
    done
    [ "$killed" ]
}

remove_dir() {
    # Again: a killed process may have started another one just before.
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill_users "$1" || break; sleep 0.1; done
    mounts "$1" | while read -r mount; do
        mount=$(printf '%b' "$mount")
        umount "$mount" || umount --lazy "$mount"
    done
    losetup --list --noheadings --raw --output NAME,BACK-FILE | while read -r device file; do
        case $file in "$1"/*) losetup --detach "$device" ;; esac
    done
    [ -z "$(mounts "$1")" ] && rm -rf --one-file-system "$1"
}

for dir in $remaining; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        remove_dir "$dir" 2>/dev/null && continue 2
        sleep 0.5
    done
    echo "$dir was left behind by a test that was killed: $(mounts "$dir" | tr '\n' ' ')" >&2
done
