//! The instruments, as OpenTelemetry would call them. A recorder for Prometheus writes `_` for `.`, and the unit and
//! `_total` after them: `delayline_task_lateness_seconds`, `delayline_verbs_total`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(crate) const TASK_LATENESS: &str = "delayline.task.lateness";
pub(crate) const TASKS: &str = "delayline.tasks";
pub(crate) const TASKS_DUE: &str = "delayline.tasks.due";
pub(crate) const OVERDUE_OLDEST: &str = "delayline.overdue.oldest";
pub(crate) const FAILING_OLDEST: &str = "delayline.failing.oldest";
pub(crate) const VERBS: &str = "delayline.verbs";
pub(crate) const ATTEMPTS: &str = "delayline.attempts";
pub(crate) const WAKEUPS: &str = "delayline.wakeups";
pub(crate) const PROCESS_DURATION: &str = "messaging.process.duration";
#[cfg(feature = "rocketmq")]
pub(crate) const LEVEL_LATENESS: &str = "delayline.level.lateness";
#[cfg(feature = "rocketmq")]
pub(crate) const LEVEL_STUCK: &str = "delayline.level.stuck";
#[cfg(feature = "rocketmq")]
pub(crate) const OPERATION_DURATION: &str = "messaging.client.operation.duration";

/// Tells the recorder what each is, and in which unit.
pub(super) fn describe() {
    describe_histogram!(
        TASK_LATENESS,
        Unit::Seconds,
        "How long after its due time a task was started"
    );
    describe_gauge!(
        TASKS,
        Unit::Count,
        "Tasks in the store that are not over, counted up to 100000 of a kind"
    );
    describe_gauge!(
        TASKS_DUE,
        Unit::Count,
        "Scheduled tasks that are due within bound_s seconds, or overdue, counted up to 100000 of a kind"
    );
    describe_gauge!(
        OVERDUE_OLDEST,
        Unit::Seconds,
        "For how long the task has been due that has waited longest; 0 if none waits, or the kind is paused"
    );
    describe_gauge!(
        FAILING_OLDEST,
        Unit::Seconds,
        "For how long the task is late whose attempts have failed longest; 0 if none fails, or the kind is paused"
    );
    describe_counter!(
        VERBS,
        Unit::Count,
        "What callers asked for, and what was answered"
    );
    describe_counter!(ATTEMPTS, Unit::Count, "Ends of claims, by what came of them");
    describe_counter!(
        WAKEUPS,
        Unit::Count,
        "Wake-ups that were sent, and that have come"
    );
    describe_histogram!(
        PROCESS_DURATION,
        Unit::Seconds,
        "How long handlers ran, and claimants had their tasks"
    );
    #[cfg(feature = "rocketmq")]
    {
        describe_histogram!(
            LEVEL_LATENESS,
            Unit::Seconds,
            "How much longer than its delay a delay level of a broker kept a wake-up; a sample of them"
        );
        describe_gauge!(
            LEVEL_STUCK,
            Unit::Count,
            "1 if a delay level of a broker has stopped delivering, else 0"
        );
        describe_histogram!(
            OPERATION_DURATION,
            Unit::Seconds,
            "How long brokers took to confirm messages"
        );
    }
}
