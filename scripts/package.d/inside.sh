#!/usr/bin/env bash
# What scripts/package runs in the bare system: the tool from the tarball, with what a minimal Debian has.
set -euo pipefail
cd /var/lib/delayline
rm -f delayline.db* log

die() {
    echo "in the bare system: $*" >&2
    exit 1
}
tool=/usr/local/bin/delayline
$tool --version
$tool plan 15m >/dev/null
# The sample configuration, as the unit checks it before it starts.
DELAYLINE_STORE=sqlite:/var/lib/delayline/delayline.db SHOP_TOKEN_SHA256=$(printf %s token | sha256sum | cut -d' ' -f1) \
    $tool serve --config /opt/delayline/etc/delayline.toml --check
# With TLS: the certificates of the system are only read when something connects.
DELAYLINE__KINDS='{ "a" = { deliver = { url = "https://billing.example/hooks", secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" } } }' \
    $tool serve --check
# A build without RocketMQ or Redis refuses these.
$tool serve --nameserver 127.0.0.1:9876 --redis rediss://127.0.0.1 --check

# Without a file at all.
$tool serve --listen 127.0.0.1:7700 >started 2>log &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until grep -q ^serving started; do
    kill -0 $server 2>/dev/null || die "it ended: $(<log)"
    sleep 0.1
done

# ask METHOD PATH [BODY]: prints the answer.
ask() {
    exec 3<>/dev/tcp/127.0.0.1/7700
    printf '%s %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s' \
        "$1" "$2" "${#3}" "$3" >&3
    cat <&3
    exec 3>&-
}
[[ $(ask GET /healthz '') == *' 200 '* ]] || die "it is not healthy"
[[ $(ask PUT /v1/tasks/order.cancel/42 '{"after":"1h"}') == *'"answer":"new"'* ]] || die "no task was scheduled"
[[ $(ask GET /v1/tasks/order.cancel/42 '') == *'"order.cancel"'* ]] || die "the task is not there"
[[ $($tool tasks show order.cancel 42 --store delayline.db) == *order.cancel* ]] || die "the tool does not see the task"
kill $server
wait $server || die "it did not end well: $(<log)"
echo "in the bare system: all is well"
