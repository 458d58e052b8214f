#!/bin/sh
# Installs the system package that the sandbox for model-written code likes best: bubblewrap (docs/sandbox.md). POSIX sh.
# Exits 0 when it is there afterwards. Nothing else needs it: without it the sandbox takes the next back end.
set -u

say() {
    printf '%s\n' "$*" >&2
}

there() {
    command -v "$1" >/dev/null 2>&1
}

# Words before a command that needs root: none for root, sudo where it asks for no password.
as_root() {
    [ "$(id -u 2>/dev/null)" = 0 ] && return
    there sudo && sudo -n true 2>/dev/null && printf 'sudo -n' && return
    return 1
}

# The lists of packages may be old or missing (container images): then they are fetched, and it is tried once more.
with_apt() {
    set -- $1 env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60
    "$@" install -y --no-install-recommends bubblewrap || { "$@" update && "$@" install -y --no-install-recommends bubblewrap; }
}

install_it() {
    if there apt-get; then
        with_apt "$1"
    elif there dnf; then
        $1 dnf install -y -q bubblewrap
    elif there apk; then
        $1 apk add --quiet bubblewrap
    else
        say "no apt-get, dnf or apk on this machine"
        return 1
    fi
}

there bwrap && exit 0
if root=$(as_root); then
    say "bubblewrap is not on this machine; installing it, for the sandbox"
    install_it "$root" >&2
else
    say "installing bubblewrap needs root, or sudo without a password"
fi
there bwrap && exit 0
say "bubblewrap is not installed: the sandbox will use Landlock where the kernel has it, and refuse where not (docs/sandbox.md)."
say "Install it yourself (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap; Alpine: apk add bubblewrap)."
exit 1
