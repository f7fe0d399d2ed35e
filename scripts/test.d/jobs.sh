# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here
# Jobs: test binaries, or commands, that run beside each other with a log each. Sourced by scripts/test.
#
# Tests mostly wait: for levels of brokers, for leases, for servers that come back. So several binaries run at once, and in
# each several tests.

# What was built, a line each: TARGET PATH FOLDER, where unit tests are called unit and tool.
binaries=$servers/binaries

# build CARGO-OPTIONS...: builds tests, and remembers their binaries.
build() {
    cargo test --no-run "$@" 2>&1 | tee "$servers/build.log"
    sed -nE 's#^ *Executable (unittests src/lib.rs|unittests src/main.rs|tests/[a-z_]+(/main)?\.rs) \((.*)\)#\1 \3#p' \
        "$servers/build.log" | while read -r kind path; do
        case $kind in
        unittests)
            # The path stands after the file.
            case $path in "src/lib.rs "*) echo "unit ${path#* } ." ;; *) echo "tool ${path#* } server" ;; esac
            ;;
        *)
            kind=${kind#tests/} && kind=${kind%.rs} && kind=${kind%/main}
            case $kind in serve | cli) echo "$kind $path server" ;; *) echo "$kind $path ." ;; esac
            ;;
        esac
    done | awk -v here="$PWD" '{ if ($2 !~ /^\//) $2 = here "/" $2; print }' >"$binaries"
    [[ -s $binaries ]] || die "cargo does not say which tests it has built"
    # That it took is no job's.
    work
}

# Names of jobs that failed.
failed=()
# Of those that run: process to name.
declare -A running=()
# When each began.
declare -A began=()

# The processor time of all processes that have ended, in seconds.
worked=0

# work: sets `worked`. What is in a subshell is not counted, so there is none.
work() {
    times >"$servers/times"
    worked=$(awk -F '[ms ]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4) }' "$servers/times")
}

# reap: waits for one job to end, and says how it did, how long it took, and how much processor time ended since the last
# one: its own, but for what servers took that it left running or killed.
reap() {
    local process status=0 name before=$worked
    wait -n -p process "${!running[@]}" || status=$?
    work
    name=${running[$process]}
    unset "running[$process]"
    local result
    result=$(sed -nE 's/^test result: [a-zA-Z]+\. ([0-9]+ passed; [0-9]+ failed).*/\1/p' "$logs/$name" | paste -sd+ || true)
    printf '%s %-16s %4d s  %4d s of processors  %s\n' "$( ((status == 0)) && echo "ok    " || echo FAILED)" "$name" \
        $((SECONDS - began[$name])) $((worked - before)) "$result"
    ((status == 0)) || failed+=("$name")
}

# idle: how many percent of a second the processors have nothing to do that is not niced; all of it where the system does
# not tell.
idle() {
    [[ -r /proc/stat ]] || { echo 100 && return; }
    local before after
    before=$(head -n 1 /proc/stat)
    sleep 1
    after=$(head -n 1 /proc/stat)
    printf '%s\n' "$before" "$after" | awk '
        NR == 1 { for (i = 2; i <= NF; i++) before[i] = $i }
        NR == 2 {
            for (i = 2; i <= NF; i++) all += $i - before[i]
            # Of niced processes, of none, and of none while a disk works.
            free = $3 - before[3] + $5 - before[5] + $6 - before[6]
            print int(all > 0 ? 100 * free / all : 100)
        }'
}

# room: waits until another job may begin. Where the processors are busy, jobs go one after the other: tests that get too
# little of a machine wait for long, and what asks meanwhile whether it is so far takes the rest.
room() {
    while ((${#running[@]} >= slots)); do reap; done
    while ((${#running[@]} > 0 && $(idle) < 25)); do
        local process
        for process in "${!running[@]}"; do
            kill -0 "$process" 2>/dev/null || { reap && break; }
        done
    done
}

# job NAME COMMAND...: runs it when there is room.
job() {
    local name=$1
    shift
    room
    began[$name]=$SECONDS
    # What is a function of these scripts ends by itself.
    [[ $(type -t "$1") == function ]] || set -- timeout --kill-after 30 "$limit" "$@"
    "$@" >"$logs/$name" 2>&1 </dev/null &
    running[$!]=$name
    # Until it has begun to work.
    [[ $slots == 1 ]] || sleep 2
}

all_jobs() {
    while ((${#running[@]} > 0)); do reap; done
}

# tests NAME TARGET THREADS ARGUMENTS...: a job that runs tests of a binary that was built, so many at once.
tests() {
    local target path folder
    while read -r target path folder; do
        if [[ $target == "$2" ]]; then
            job "$1" env --chdir "$folder" CARGO_MANIFEST_DIR="$PWD/$folder" "$path" \
                --color never --test-threads "$3" "${@:4}"
            return
        fi
    done <"$binaries"
    die "no test target $2 was built"
}

# Prints of each failure: the test, what it asserted, seeds, the servers' last lines, and how to repeat it, so that the end
# of the output is enough.
report() {
    ((${#failed[@]} > 0)) || return 0
    step "failures"
    local name
    for name in "${failed[@]}"; do
        # Parts of the night that are no tests print as they go.
        [[ -f $logs/$name ]] || { echo "FAILED $name: see its output above" && continue; }
        awk -v job="$name" -v each="$((${#failed[@]} > 1 ? 12 : 30))" '
            /^---- .* stdout ----$/ { test = $2; lines = 0; section = 1; shown++; if (shown <= 4) print "FAILED " job " " test; next }
            /^failures:$/ { section = 0 }
            section && / panicked at / { message = 5 }
            section && /^stack backtrace:/ { message = 0 }
            section && /^the server.s log:/ { log_of = 8 }
            section && shown <= 4 && lines < each && (message > 0 || log_of > 0 || /seed/) {
                print "    " substr($0, 1, 400); lines++; message--; log_of--
            }
            /^test .* has been running for over/ { slow[$2] = 1 }
            /^test .* \.\.\. / { delete slow[$2] }
            /^test .* FAILED$/ { tests = tests "    repeat: scripts/test repeat 10 " $2 "\n"; many++ }
            /^(error|warning)(\[|:)/ && lines < each { print "    " $0; lines++ }
            END {
                for (test in slow) { print "FAILED " job " " test "\n    did not end: the job was stopped"; many++ }
                printf "%s", tests
                if (!many && !lines) print "FAILED " job ": see its output above"
            }' "$logs/$name"
    done
    # What a machine that is full or slow says.
    echo "machine: $(df -P "$servers" | awk 'NR == 2 { print $5 " of the disk used" }'), $(free -m | awk 'NR == 2 { print $7 " MiB free" }'), load $(cut -d' ' -f1-3 /proc/loadavg)"
    grep -rhE 'disk|busy|OutOfMemory' "$servers"/rocketmq/*.log 2>/dev/null | tail -n 3 || true
}

# The line that counts, over all jobs; false if one failed or no test ran, as parts of the night have none.
total() {
    cat "$logs"/* | awk -v needs_tests="$([[ $tier == night ]] || echo 1)" '
        /^test result:/ { passed += $4; failed += $6; ignored += $8 }
        END {
            printf "%d ignored\n%d passed, %d failed\n", ignored, passed, failed
            exit ignored > 0 || failed > 0 || (needs_tests && passed == 0)
        }' && ((${#failed[@]} == 0))
}
