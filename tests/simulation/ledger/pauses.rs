//! Pauses: what they forbid, and what they excuse.

use std::time::Duration;

use delayline::{Kind, defaults};

use super::{Book, Ledger};

/// A pause, by the true time.
#[derive(Debug)]
pub(super) struct Pause {
    kind: Kind,
    answered: Option<Duration>,
    /// When it ends by itself.
    until: Option<Duration>,
    /// When the next call about the kind was made, and when the kind was resumed.
    over: Option<Duration>,
    resumed: Option<Duration>,
}

/// A pause that is not answered yet.
pub(crate) struct Pausing(usize);

impl Ledger {
    /// The operator asks for a pause.
    pub(crate) fn pausing(&self, kind: &str, length: Option<Duration>) -> Pausing {
        self.note(|| format!("{kind} is to be paused for {length:?}"));
        self.resuming(kind);
        let at = self.elapsed();
        let mut book = self.book();
        book.pauses.push(Pause {
            kind: kind.into(),
            answered: None,
            until: length.map(|length| at + length),
            over: None,
            resumed: None,
        });
        Pausing(book.pauses.len() - 1)
    }

    /// It was answered.
    pub(crate) fn paused(&self, Pausing(index): Pausing) {
        self.note(|| "it is paused".to_owned());
        let at = self.elapsed();
        self.book().pauses[index].answered = Some(at);
    }

    /// The operator asks for a kind to be resumed: from now on its tasks may start.
    pub(crate) fn resuming(&self, kind: &str) {
        let at = self.elapsed();
        for pause in of_kind(&mut self.book(), kind) {
            pause.over.get_or_insert(at);
        }
    }

    pub(crate) fn resumed(&self, kind: &str) {
        self.note(|| format!("{kind} is resumed"));
        let at = self.elapsed();
        for pause in of_kind(&mut self.book(), kind) {
            pause.resumed.get_or_insert(at);
        }
    }

    /// How many pauses were answered.
    pub(crate) fn pauses(&self) -> usize {
        let book = self.book();
        let answered = book.pauses.iter().filter(|pause| pause.answered.is_some());
        answered.count()
    }
}

fn of_kind<'a>(book: &'a mut Book, kind: &str) -> impl Iterator<Item = &'a mut Pause> {
    book.pauses
        .iter_mut()
        .filter(move |pause| pause.kind.as_str() == kind)
}

impl Book {
    /// The pause by which no task of a kind may start.
    pub(super) fn forbids(&self, kind: &Kind, at: Duration) -> Option<&Pause> {
        self.pauses.iter().find(|pause| {
            pause.kind == *kind
                && pause
                    .answered
                    .is_some_and(|answered| at >= answered + defaults::PAUSE_SEEN)
                && pause.over.is_none_or(|over| at < over)
                && pause.until.is_none_or(|until| at < until)
        })
    }

    /// Whether a worker may have known of a pause since then, and so give back what it holds.
    pub(super) fn was_paused(&self, kind: &Kind, since: Duration) -> bool {
        // What is known holds for a second, and the store may hang before it is given back.
        let known = |end: Duration| end + defaults::PAUSE_SEEN + defaults::STORE_TIMEOUT >= since;
        self.pauses
            .iter()
            .any(|pause| pause.kind == *kind && pause.resumed.is_none_or(known))
    }
}
