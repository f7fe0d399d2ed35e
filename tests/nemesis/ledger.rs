//! Records what callers asked for, and the answers: kept here, where no fault reaches it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use delayline::TaskId;

use crate::now;
use crate::verbs::Said;

/// The request, as far as it matters afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Schedule,
    Move,
    Cancel,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: What,
    /// By the clock of the machine, which is that of all servers, in ms.
    pub(crate) asked: i64,
    pub(crate) answered: i64,
    pub(crate) said: Said,
}

/// All calls of one caller: about a task, and perhaps others that were scheduled by the same key.
///
/// Each answer says which task it is about. An unanswered call may be about any of them.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: &'static str,
    /// The first, and perhaps others.
    pub(crate) ids: Vec<TaskId>,
    /// The name of an effect in the same transaction as the first row, if there is one.
    pub(crate) effect: Option<String>,
    pub(crate) calls: Vec<Call>,
}

/// By the first task of each caller.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<TaskId, Asked>>);

/// A call that is not answered yet.
pub(crate) struct Asking {
    first: TaskId,
    index: usize,
}

impl Ledger {
    pub(crate) fn begin(&self, id: TaskId, kind: &'static str, effect: Option<String>) {
        let asked = Asked {
            kind,
            ids: vec![id],
            effect,
            calls: Vec::new(),
        };
        self.0.lock().unwrap().insert(id, asked);
    }

    /// Another task by the same caller.
    pub(crate) fn add(&self, first: TaskId, id: TaskId) {
        let mut ledger = self.0.lock().unwrap();
        ledger.get_mut(&first).unwrap().ids.push(id);
    }

    pub(crate) fn ask(&self, first: TaskId, what: What) -> Asking {
        let mut ledger = self.0.lock().unwrap();
        let calls = &mut ledger.get_mut(&first).unwrap().calls;
        calls.push(Call {
            what,
            asked: now(),
            answered: i64::MAX,
            said: Said::Unknown("no answer".to_owned()),
        });
        Asking {
            first,
            index: calls.len() - 1,
        }
    }

    pub(crate) fn answer(&self, Asking { first, index }: Asking, said: Said) {
        let mut ledger = self.0.lock().unwrap();
        let call = &mut ledger.get_mut(&first).unwrap().calls[index];
        call.answered = now();
        call.said = said;
    }

    pub(crate) fn into_all(self) -> Vec<Asked> {
        self.0.into_inner().unwrap().into_values().collect()
    }
}
