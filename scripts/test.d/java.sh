# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here
# The library for Java, and the project that docs/for-rocketmq-users.md shows. Sourced by scripts/test.

readonly JAVA_TESTS=org.apache.maven.plugins:maven-surefire-plugin:3.5.4:test

# java_client: the library's tests with the oldest client of RocketMQ, against which it is compiled, and the example with a
# later one; on the brokers of DELAYLINE_ROCKETMQ.
java_client() { java_library install && java_example 5.3.3; }

# java_clients NAME: and with those before, of and after the releases whose requests give up at once.
java_clients() {
    local client
    job "java-$1" java_client
    all_jobs
    for client in 5.3.0 5.3.3 5.5.0; do
        job "java-$1-$client" java_library $JAVA_TESTS "-Drocketmq.version=$client" -Dspring-boot.version=3.5.7
        all_jobs
    done
}

# maven OPTIONS...: one at a time, as it does not lock what it fetches.
maven() { flock "${TMPDIR:-/tmp}/delayline-maven-$UID.lock" timeout --kill-after 10 600 mvn -B -Dstyle.color=never "$@"; }

# java_library GOAL OPTIONS...
java_library() {
    local log=$servers/java-library status=0
    DELAYLINE_TOOL=$PWD/target/debug/delayline maven -f clients/java "$@" >"$log" 2>&1 || status=1
    ((status == 0)) || grep -E '^\[ERROR\]|^  *at io\.delayline' "$log" | head -n 40
    grep '^answered ' "$log" || true
    # As others say it, so that it is counted.
    awk -F '[:,]' '/^\[(INFO|ERROR|WARNING)\] Tests run:/ && !/Time elapsed/ {
        bad = $4 + $6
        printf "test result: %s. %d passed; %d failed; %d ignored\n", bad ? "FAILED" : "ok", $2 - bad - $8, bad, $8
    }' "$log"
    return "$status"
}

# java_example CLIENT: the page shows its files as they are, and they do what it says.
java_example() {
    local page=docs/for-rocketmq-users.md example=clients/java/example dir=$servers/java-example process status=0
    python3 scripts/test.d/shown.py $page $example/pom.xml $example/src/main/java/shop/Shop.java || return
    mkdir -p "$dir"
    {
        echo 'http.listen = "127.0.0.1:0"'
        sed -n '/^```toml$/,/^```$/p' $page | sed "/^\`\`\`/d; s/127.0.0.1:9876/$DELAYLINE_ROCKETMQ/"
    } >"$dir/delayline.toml"
    # By those of 5.x, as the tools of 4.x do nothing without a folder of RocketMQ, and succeed.
    java -cp "$(scripts/rocketmq jars 5.3.3)/*" org.apache.rocketmq.tools.command.MQAdminStartup updateTopic \
        -n "$DELAYLINE_ROCKETMQ" -c DefaultCluster -t order_timeouts >"$dir/log" 2>&1 || return
    (cd "$dir" && exec "$OLDPWD/target/debug/delayline" serve --config delayline.toml) >>"$dir/log" 2>&1 &
    process=$!
    maven -q -f $example compile exec:java "-Dexec.args=$DELAYLINE_ROCKETMQ" "-Drocketmq.version=$1" \
        >"$dir/said" 2>>"$dir/log" || status=1
    kill "$process" && wait "$process" || true
    # What comes out may do so between answers; and Maven colours what it does not say.
    diff <(sed -n '/^\$ mvn/,/^```$/p' $page | grep ^order | sort) <(sed 's/\x1b\[[0-9;]*m//g' "$dir/said" | grep ^order | sort) || status=1
    ((status == 0)) || tail -n 40 "$dir/log" "$dir/said"
    echo "test result: $( ((status == 0)) && echo "ok. 1 passed; 0 failed" || echo "FAILED. 0 passed; 1 failed"); 0 ignored"
    return "$status"
}
