//! The scripts, and how one is called.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind};

/// Takes wake-ups in.
pub(super) static SEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("send.lua")));
/// Hands those that are due out, on a lease.
pub(super) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("take.lua")));

/// A command; if it calls a script, together with that script, for a server that does not know it (any more).
pub(super) struct Call {
    command: Cmd,
    script: Option<&'static Script>,
}

impl Call {
    pub(super) fn command(command: Cmd) -> Self {
        Self {
            command,
            script: None,
        }
    }

    /// A call of `script`, to which the arguments are to be added.
    pub(super) fn script(script: &'static Script, keys: &[&str]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(keys.len()).arg(keys);
        Self {
            command,
            script: Some(script),
        }
    }

    pub(super) fn arg(&mut self, arg: impl redis::ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    pub(super) async fn on<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let answer = self.command.query_async(connection).await;
        match (&answer, self.script) {
            (Err(error), Some(script)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                script.load_async(connection).await?;
                self.command.query_async(connection).await
            }
            _ => answer,
        }
    }
}
