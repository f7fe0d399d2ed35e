# shellcheck shell=bash disable=SC2154 # scripts/package sets what stands here
# Tries a package on a system that has nothing. Sourced by scripts/package.

# bare ROOT: makes a Debian without anything beside, from where this machine gets its packages.
bare() {
    command -v debootstrap >/dev/null || die "debootstrap is needed (apt-get install debootstrap), or a ROOT of a bare Debian"
    local mirror
    # shellcheck disable=SC2016 # it is apt's own
    mirror=$(apt-get indextargets --format '$(SITE)' "Created-By: Packages" 2>/dev/null | grep -v security | head -n 1)
    debootstrap --variant=minbase "$SUITE" "$1" "${mirror:-http://deb.debian.org/debian}" >&2
}

# in_root COMMAND...: in a network of its own with only the loopback, and as a user without rights, as the unit has it.
in_root() {
    unshare --net sh -c 'ip link set lo up && exec chroot --userspec=7700:7700 "$@"' sh "$tried" \
        env -i PATH=/usr/bin:/bin HOME=/var/lib/delayline "$@"
}

try_package() {
    local package=$1 sums
    ((EUID == 0)) || die "try needs root, for chroot"
    sums=${package%.tar.gz}.sha256
    (cd "$(dirname "$package")" && sha256sum --check --quiet "$(basename "$sums")") || die "$package is not what its sum says"
    tried=$2
    if [[ -z $tried ]]; then
        tried=$(mktemp -d)
        trap 'rm -rf "$tried"' EXIT
        # It becomes the root of a user without rights.
        chmod 755 "$tried"
        bare "$tried"
    fi
    ! chroot "$tried" sh -c 'command -v cargo || command -v rustc' || die "$tried is not bare: it has Rust"

    rm -rf "$tried/opt/delayline"
    mkdir -p "$tried/opt/delayline" "$tried/var/lib/delayline"
    tar --extract --file "$package" --directory "$tried/opt/delayline" --strip-components=1
    # As INSTALL says.
    install -m 755 "$tried/opt/delayline/bin/delayline" "$tried/usr/local/bin/delayline"
    chown 7700:7700 "$tried/var/lib/delayline"
    install -m 755 scripts/package.d/inside.sh "$tried/var/lib/delayline/inside.sh"
    in_root bash /var/lib/delayline/inside.sh
    # What bash and groff make of the rest, with this machine's.
    bash -n "$tried/opt/delayline/share/completions/delayline.bash"
    local page
    for page in "$tried"/opt/delayline/share/man/man1/*.1; do
        if command -v groff >/dev/null; then groff -man -Tutf8 -ww "$page" >/dev/null; fi
    done
    echo "package: $(basename "$package") runs on a bare $SUITE" >&2
}
