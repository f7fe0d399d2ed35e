# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here
# What takes long, or finds by chance. Sourced by scripts/test.

# part NAME WHAT COMMAND...: does it if the night is to have a part of this name, and keeps for the summary how long it took and
# what of it failed. The shell does not end a function before ||, so each says itself when a command of it has failed.
part() {
    local name=$1 what=$2 before=${#failed[@]} since=$SECONDS
    known+=("$name")
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || return 0
    [[ -z $naming ]] || return 0
    step "$name: $what"
    "${@:3}" || failed+=("$name")
    all_jobs
    local said=ok
    ((${#failed[@]} == before)) || said="FAILED: ${failed[*]:before}"
    printf '%6d s  %-16s %-60s %s\n' $((SECONDS - since)) "$name" "$what" "$said" >>"$logs/summary"
}

# on_version BROKERS NAMESERVER: the tests of what speaks to RocketMQ, with all their servers of these versions. Those
# left out say for themselves which versions they want, and have been run.
on_version() {
    local server=$servers/rocketmq-$1-$2 without=(--skip security:: --skip nameserver::) shared=$DELAYLINE_ROCKETMQ
    # Timer messages came with 5.0. Before, a broker keeps the limit by which a test makes a level stop until it is
    # started again, and it listens on all addresses of the loopback; and the bare client can read neither its list of groups
    # nor how many messages a topic has.
    [[ $1 != 4.* ]] || without+=(
        --skip timers
        --skip masters::a_level_that_stops_delivering_is_not_used_until_it_goes_on
        --skip failures::a_broker_that_registered_an_address_of_its_own_world_is_told_with_it_and_its_setting
        --skip survey::a_scratch_place_serves_and_leaves_nothing_behind
        --skip inbox::what_was_given_back_to_its_broker_was_stored_when_it_came_first
    )
    # The bare client that these look with cannot read what such a nameserver says.
    [[ $2 != 4.* ]] || without+=(
        --skip forwarding
        --skip hostile
        --skip carrying::the_topic_is_made_and_known_before_anything_consumes
        --skip carrying::a_topic_that_is_there_stays_as_its_operator_made_it
        --skip carrying::foreign_messages_are_dropped_counted_and_not_redelivered
    )
    export DELAYLINE_ROCKETMQ_VERSION=$1 DELAYLINE_NAMESERVER_VERSION=$2
    if scripts/rocketmq start "$server" --levels "1s 2s 5s 10s"; then
        DELAYLINE_ROCKETMQ=$(<"$server/namesrv")
        tests "outage-$1-$2" outage 8 "${without[@]}"
        tests "rocketmq-$1-$2" rocketmq 8 "${without[@]}"
        # Not the nemesis, which is a part by itself, and whose bare client has to read how many messages a topic has.
        tests "gateway-$1-$2" serve 4 gateway --skip nemesis::
        all_jobs
        [[ $1 != 4.9.* ]] || java_clients "$1-$2"
    else
        failed+=("RocketMQ $1")
    fi
    scripts/rocketmq stop "$server"
    unset DELAYLINE_ROCKETMQ_VERSION DELAYLINE_NAMESERVER_VERSION
    DELAYLINE_ROCKETMQ=$shared
}

# Each feature alone, as users build it. RocketMQ's client takes minutes each time that it is built with other features.
lints_of_features() {
    local features
    for features in "" sqlite postgres mysql redis rocketmq testing postgres,mysql,sql-tls redis-tls rocketmq-tls; do
        cargo clippy --quiet --package delayline --lib --no-default-features --features "$features" -- --deny warnings || return
    done
    for features in "" sqlite postgres mysql redis rocketmq; do
        cargo clippy --quiet --package delayline-server --bins --no-default-features --features "$features" -- --deny warnings || return
    done
}

# A million histories, from a seed that is printed and kept for the summary.
histories() {
    local log=$logs/histories status=0
    DELAYLINE_HISTORIES=1000000 cargo test --release --no-default-features --features testing --test simulation -- \
        --color never --nocapture 2>&1 | tee "$log" || status=1
    sed -n 's/^\([0-9]* histories from seed [0-9]*\)$/          \1/p' "$log" >>"$logs/summary"
    return "$status"
}

# Some mistakes show in one of thousands of histories.
mutants() { DELAYLINE_HISTORIES=50000 scripts/mutants; }

# Without the second compiler where brokers live shortly, and with it where they live long.
nemesis() {
    export DELAYLINE_NEMESIS_SECONDS=600
    JAVA_TOOL_OPTIONS="" tests nemesis-on nemesis 2 --nocapture on_
    all_jobs
    # By itself: over a file and over PostgreSQL, as the seed says.
    tests nemesis-server serve 1 --nocapture nemesis::
    all_jobs
    unset DELAYLINE_NEMESIS_SECONDS
    sed -n 's/^\(.*\(seed \|SEED=\)[0-9]*.*\)$/          nemesis: \1/p' "$logs/nemesis-on" "$logs/nemesis-server" |
        sort -u | head -n 12 >>"$logs/summary"
}

long_outages() {
    # Longer than RocketMQ's client lets a listener have a message, which is 15 minutes.
    DELAYLINE_HOLD_SECONDS=1080 tests inbox rocketmq 1 inbox::what_is_not_acknowledged
    export DELAYLINE_OUTAGE_SECONDS=60 DELAYLINE_OUTAGE_RATE=2000
    tests redis_outage redis_outage 2
    all_jobs
    tests outage outage 4
    all_jobs
    unset DELAYLINE_OUTAGE_RATE
}

# The library beside the bare statements of each store, which must not fall behind what it was.
floors() {
    local log=$logs/bench.json
    cargo build --release --package delayline-server &&
        target/release/delayline bench W1 W2 W6 --json --store "$DELAYLINE_POSTGRES" --store "$DELAYLINE_MYSQL" \
        --store "$servers/bench.db" --store "$(<"$servers/redis/url")" >"$log" &&
        python3 scripts/test.d/floors.py benches/floors.tsv "$log"
}

parts() {
    known=()
    part promises "what a change must pass, the fuzzer, and rows over TLS" promises
    part outages "servers that are gone for a minute, under 2,000 tasks a second" long_outages
    part java "clients of RocketMQ for Java, on 5.3.3" java_clients 5.3.3
    part mysql "MySQL" on_mysql
    part rocketmq-5.5.0 "RocketMQ 5.5.0" on_version 5.5.0 5.5.0
    part rocketmq-mixed "RocketMQ 4.9.7 with a nameserver of 5.3.3" on_version 4.9.7 5.3.3
    part rocketmq-4.9.7 "RocketMQ 4.9.7" on_version 4.9.7 4.9.7
    part rocketmq-4.8.0 "RocketMQ 4.8.0" on_version 4.8.0 4.8.0
    part nemesis "the nemesis, ten minutes on each of five stores, and on the server" nemesis
    part histories "a million histories" histories
    part packaging "packages, images, charts and workflows" packaging
    part mutants "planted mistakes" mutants
    part benches "benches, beside what they were" floors
    part lints "lints and documentation of everything" full_lints
    part features "lints of each feature" lints_of_features
}

# Refuses a name that no part has, before anything is built.
check_parts() {
    local naming=yes name
    parts
    for name in "${wanted[@]}"; do
        [[ " ${known[*]} " == *" $name "* ]] || die "the night has no part $name, but ${known[*]}"
    done
}

night() {
    limit=14400
    local naming="" DELAYLINE_FUZZ_CASES=${DELAYLINE_FUZZ_CASES:-10000}
    export DELAYLINE_FUZZ_CASES
    export DELAYLINE_GATEWAY_ORDERS=${DELAYLINE_GATEWAY_ORDERS:-1000}
    parts
    step "summary"
    cat "$logs/summary"
}
