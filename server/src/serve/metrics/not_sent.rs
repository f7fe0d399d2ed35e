//! Stands in for the sender of figures, in a build that cannot send: nothing is sent.

use metrics::NoopRecorder;

use crate::Failure;
use crate::serve::config::Otlp;
use crate::serve::open::not_built;

#[derive(Debug)]
pub(crate) enum Sent {}

impl Sent {
    pub(super) fn start(_: &Otlp) -> Result<Self, Failure> {
        Err(not_built("otlp"))
    }

    pub(super) fn recorder(&self) -> NoopRecorder {
        match *self {}
    }

    pub(crate) async fn end(self) {
        match self {}
    }
}
