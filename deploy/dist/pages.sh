# Follows the commands of docs/install.md on hosts n1, n2 and n3 (hosts.sh). Sourced, not run.
#
# Owns:     the office: a directory that stands for the machine that keeps the identities. It reaches the
#           hosts as ssh and scp would.
# Promises: the commands are those of the page, from its blocks of shell commands.
# Never:    adds a command that the page does not have.

PAGE=docs/install.md

# The blocks of shell commands of the page's section that begins so.
commands() {
    awk -v section="## $1" '/^## / { within = index($0, section) == 1 }
        /^```sh$/ { shell = within; next } /^```/ { shell = 0 } shell' "$PAGE"
}

# follow HOST SECTION: what the person at this host types.
follow() {
    local text
    text=$(commands "$2")
    [[ -n $text ]] || fail "$PAGE has no commands in '$2'"
    on "$1" bash -euc "$text" >"$DIR/said" 2>&1 || fail "$2, on $1"
}
# What a person types at the machine that keeps the identities: this one. It reaches the hosts as
# ssh and scp would.
follow_here() {
    local text
    text=$(commands "$1")
    (cd "$DIR/office" && PATH="$DIR/office/bin:$DIR/office/cli/usr/bin:$PATH" bash -euc "$text") \
        >"$DIR/said" 2>&1 </dev/null || fail "$1"
}
# install_at_office PACKAGES: `berth` of the packages in that directory.
install_at_office() {
    rm -rf "$DIR/office/cli"
    dpkg-deb --extract "$1"/berth-cli_*.deb "$DIR/office/cli"
}
make_office() {
    local host
    mkdir -p "$DIR/office/bin"
    install_at_office "$1"
    for host in n1 n2 n3; do
        printf '%s %s %s\n' "$host" "${LEADER[$host]}" "$(root_of "$host")"
    done >"$DIR/office/hosts"
    cat >"$DIR/office/bin/ssh" <<'END'
#!/bin/bash -eu
read -r _ leader _ < <(grep "^${1#root@} " "${0%/bin/*}/hosts")
exec nsenter --target "$leader" --all --root --wd -- /usr/bin/env -i -C /root HOME=/root \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "${*:2}"
END
    cat >"$DIR/office/bin/scp" <<'END'
#!/bin/bash -eu
to=${*: -1}
host=${to%%:*}
read -r _ _ root < <(grep "^${host#root@} " "${0%/bin/*}/hosts")
exec cp "${@:1:$#-1}" "$root${to#*:}"
END
    chmod +x "$DIR"/office/bin/*
}
# In the directory of the packages, where the page's second step leaves them.
follow_in_dist() {
    on "$1" bash -euc "cd /root/dist; $(commands "$2")" >"$DIR/said" 2>&1 \
        || fail "$2, on $1"
}
# berth HOST COMMAND...: as the page's operator on this host.
berth_on() {
    # shellcheck disable=SC2016 # expanded on the host
    on "$1" sh -c '. /root/berth.env && exec berth "$@"' berth "${@:2}"
}
# From bare hosts to a first volume, by the page.
follow_installation() {
    local section host
    for section in '2. Names' '3. Identities' '4. The bus' '5. The services' '6. The agent'; do
        step "$section"
        case $section in
            3*) follow_here "$section" ;;
            *) for host in n1 n2 n3; do follow "$host" "$section"; done ;;
        esac
    done
    until_true 'all nodes are ready' nodes_are_ready n3
    step '7. A first volume, on n2'
    follow n2 '7. A first volume'
    grep -qx hello "$DIR/said" || fail "the page promises hello: $(<"$DIR/said")"
}
nodes_are_ready() { (($(berth_on "$1" node status | grep -cE '^n[123] +ready') == 3)); }
