//! How what is printed looks: with colours and "in 5 m" for people at a terminal, plain for what reads a pipe.

use std::fmt;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::operations::state_name;
use anstyle::{AnsiColor, Style};
use delayline::{State, Timestamp};

use crate::Failure;
use crate::time::{self, distance};

pub(crate) const HEADER: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
const NOW: Style = AnsiColor::Cyan.on_default();
const PAST: Style = Style::new().dimmed();

/// A text in a style.
pub(crate) fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The name of a state, in its colour.
pub(crate) fn state(state: State) -> String {
    let name = state_name(state);
    match state {
        State::Scheduled => name.to_owned(),
        State::Running => styled(NOW, name),
        State::Done => styled(GOOD, name),
        State::Dead => styled(BAD, name),
        State::Cancelled => styled(PAST, name),
    }
}

/// A time: in a pipe as it is, at a terminal how far it is from now.
pub(crate) fn short(time: Timestamp) -> String {
    match io::stdout().is_terminal() {
        true => distance(time, time::now()),
        false => time.to_string(),
    }
}

/// A time as it is, and at a terminal how far it is from now as well.
pub(crate) fn long(time: Timestamp) -> String {
    match io::stdout().is_terminal() {
        true => format!("{time} ({})", distance(time, time::now())),
        false => time.to_string(),
    }
}

/// Asks whether to go on, at a terminal; else refuses, and says which flag does it without.
pub(crate) fn confirm(what: &str, yes: &str) -> Result<(), Failure> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::Argument(format!(
            "{what}: nothing was done; add {yes} to do it"
        )));
    }
    let mut error = io::stderr();
    let asked = write!(error, "{what}. Go on? [y/N] ").and_then(|()| error.flush());
    let mut said = String::new();
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut said));
    match read {
        Ok(_) if matches!(&*said.trim().to_lowercase(), "y" | "yes") => Ok(()),
        Ok(_) => Err(Failure::Found("nothing was done".to_owned())),
        Err(error) => Err(Failure::Output(error)),
    }
}
