//! Stands in for spans, in a build that cannot send them: there are none.

use delayline::{Error, Outcome, Scheduled, Task};

use super::Place;
use crate::Failure;
use crate::serve::config::Otlp;
use crate::serve::open::not_built;

#[derive(Clone, Debug)]
pub(super) enum Spans {}

impl Spans {
    pub(super) fn start(_: &Otlp) -> Result<Self, Failure> {
        Err(not_built("otlp"))
    }

    pub(super) fn create(&self, _: &str, _: Option<&Place>) -> Open {
        match *self {}
    }

    pub(super) fn process(&self, _: &Task) -> Open {
        match *self {}
    }

    pub(super) async fn end(self) {
        match self {}
    }
}

pub(super) enum Open {}

impl Open {
    pub(super) fn place(&self) -> Place {
        match *self {}
    }

    pub(super) fn made(self, _: &Result<Scheduled, Error>) {
        match self {}
    }

    pub(super) fn ended(self, _: &Result<Outcome, delayline::Failure>) {
        match self {}
    }
}
