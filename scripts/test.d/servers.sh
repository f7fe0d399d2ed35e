# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here
# The servers and programs of other languages that tests need: found or installed, started and stopped. Sourced by
# scripts/test.

# install WHAT PACKAGE
install() {
    ((EUID == 0)) && command -v apt-get >/dev/null || die "$1 is needed; please install it (on Debian or Ubuntu: apt-get install $2)"
    # Debian asks this file before it starts a service; 101 forbids it. A machine's own one is left alone.
    local policy=/usr/sbin/policy-rc.d made= failed=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        made=yes
    fi
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes "$2" >/dev/null; } || failed=yes
    [[ -z $made ]] || rm -f "$policy"
    [[ -z $failed ]] || die "apt-get could not install $2"
}

# need PROGRAM PACKAGE
need() {
    command -v "$1" >/dev/null || install "$1" "$2"
}

# start SERVER: on a port below those that systems take for outgoing connections. It may be taken, so others are tried.
start() {
    for _ in {1..5}; do
        if "scripts/$1" start "$servers/$1" "$((20000 + RANDOM % 4000))"; then
            return
        fi
    done
    die "$1 does not start"
}

# A broker takes nothing on a disk that is used by 90 %, which none of its settings changes: then rather in memory.
choose_disk() {
    local used free
    used=$(df -P "${TMPDIR:-/tmp}" | awk 'NR == 2 { print +$5 }')
    free=$(df -P /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }' || true)
    if ((used > 70 && ${free:-0} > 8000000)); then
        echo "test: the disk of ${TMPDIR:-/tmp} is used by $used %, so the servers write to /dev/shm" >&2
        export TMPDIR=/dev/shm
    fi
}

# Installs what is missing, and starts what most tests share. It takes little of the processors, and so goes on while the
# tests are built.
start_servers() {
    need go golang-go
    need python3 python3
    # Debian has what makes environments apart from Python.
    python3 -c 'import ensurepip, venv' 2>/dev/null || install "Python's venv" python3-venv
    need javac default-jdk-headless
    need mvn maven
    # Its promtool, too.
    need prometheus prometheus
    # For the pages.
    need chromium chromium
    need chromedriver chromium-driver
    need pgbouncer pgbouncer
    # The tests start a Redis each; this one shows that there is a redis-server, and installs it if not.
    start redis
    # Those tests that kill the server start their own; the others share these, with a database each.
    start postgres
    start mariadb
    # Tests start brokers some sixty times.
    scripts/rocketmq classes || echo "brokers start with twice the work, as their classes cannot be kept" >&2
    # A short table: tests wait for its levels in real time. It lives long, so its second compiler pays: the figures that each
    # backend asks it for (see Admin::runtime_stats) take a tenth of the time.
    JAVA_TOOL_OPTIONS=-XX:+UseSerialGC scripts/rocketmq start "$servers/rocketmq" --levels "1s 2s 5s 10s"
}

# Tells the tests where the shared servers are.
name_servers() {
    DELAYLINE_POSTGRES=$(<"$servers/postgres/url")
    DELAYLINE_MYSQL=$(<"$servers/mariadb/url")
    DELAYLINE_ROCKETMQ=$(<"$servers/rocketmq/namesrv")
    export DELAYLINE_POSTGRES DELAYLINE_MYSQL DELAYLINE_ROCKETMQ
}

stop_servers() {
    local server
    # What they would save in peace, which takes some seconds, is not needed.
    for server in "$servers"/rocketmq*; do
        scripts/rocketmq kill "$server" || true
    done
    for server in redis postgres mariadb mysql; do
        [[ ! -d $servers/$server ]] || scripts/$server stop "$servers/$server" || true
    done
}
