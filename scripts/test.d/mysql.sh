# MySQL itself in MariaDB's place. Sourced by the night tier of scripts/test, which has start, tests and all_jobs.
# shellcheck shell=bash disable=SC2154 # scripts/test sets what stands here

# What is not run on it, and why:
# - A verb that wants a row that is locked waits a second for each on MySQL, which cannot be told not to wait. So callers
#   whose new rows share a statement with such a one wait, too: see docs/databases.md.
# - Batches of verbs that cross on the same rows got no answer in time there, a transient error, on a machine busy with
#   other work; why is not known. The test of a crowd takes any error for a fault.
readonly not_on_mysql=(
    --skip callers_that_want_no_locked_row_are_answered
    --skip eight_workers_in_four_processes_run_each_task_once
)

# on_mysql: the conformance suite, transactions, processes and servers that die, and the store's own tests.
on_mysql() {
    local mariadb=$DELAYLINE_MYSQL script=${DELAYLINE_MYSQL_SCRIPT:-}
    (start mysql) >"$logs/mysql-server" 2>&1 || {
        tail -n 5 "$logs/mysql-server" >&2
        failed+=(mysql-server)
        return 0
    }
    DELAYLINE_MYSQL=$(<"$servers/mysql/url")
    # So tests start a MySQL where they start a server of their own.
    export DELAYLINE_MYSQL DELAYLINE_MYSQL_SCRIPT=mysql
    tests mysql-store store 4 mysql::
    tests mysql-unit unit 4 store::mysql "${not_on_mysql[@]}"
    tests mysql-recovery recovery 2 mysql:: mariadb_may_die_and_come_back "${not_on_mysql[@]}"
    tests mysql-transaction transaction 4 mysql::
    all_jobs
    export DELAYLINE_MYSQL=$mariadb DELAYLINE_MYSQL_SCRIPT=$script
    [[ -n $script ]] || unset DELAYLINE_MYSQL_SCRIPT
    scripts/mysql stop "$servers/mysql"
}
