//! Stores that pass calls on to another.

/// Makes a type a store: each call goes to that in a field, and `through` is given the type and the call.
macro_rules! delegate_store {
    ($store:ty, $field:ident, $through:path) => {
        $crate::store::delegated::delegate_store! { $store, $field, $through:
            async fn now(&self) -> Timestamp;
            async fn insert(&self, rows: Vec<NewRow>) -> Stamped<Vec<Result<Scheduled, Error>>>;
            async fn change(&self, changes: Vec<Change>) -> Stamped<Vec<Result<Answer, Error>>>;
            async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Stamped<PollResult>;
            async fn ready(&self, claim: &Claim) -> Stamped<Vec<Task>>;
            async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Stamped<PollResult>;
            async fn advance(&self, steps: &[Step]) -> Vec<Guarded>;
            async fn renew(&self, claims: &[Renewal], lease: Duration) -> Vec<Guarded>;
            async fn find(&self, target: &Target) -> Option<Task>;
            async fn list(&self, page: &Page) -> Vec<Task>;
            async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Vec<Kind>;
            async fn due_within(&self, kind: &Kind, state: State, spans: &[Duration], most: usize) -> Stamped<Vec<usize>>;
            async fn history(&self, id: TaskId) -> Noted;
            async fn purge(&self, limit: usize) -> u64;
            async fn check(&self) -> ();
        }
    };
    (
        $store:ty, $field:ident, $through:path:
        $(async fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*
    ) => {
        const _: () = {
            use std::time::Duration;

            use $crate::task::wake::Wake;
            use $crate::store::*;
            use $crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};

            #[async_trait::async_trait]
            impl Store for $store {
                fn name(&self) -> &'static str {
                    self.$field.name()
                }

                $(async fn $name(&self $(, $argument: $type)*) -> Result<$answer, Error> {
                    $through(self, self.$field.$name($($argument),*)).await
                })*

                fn keep(&self, kinds: &std::sync::Arc<std::collections::BTreeMap<Kind, Keep>>) {
                    self.$field.keep(kinds);
                }

                async fn notified(&self) {
                    self.$field.notified().await;
                }
            }
        };
    };
}

pub(super) use delegate_store;

/// The call as it is.
pub(super) fn unchanged<S, F>(_: &S, call: F) -> F {
    call
}
