//! A command or a script, and how it is called.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, ToRedisArgs};

/// How a server answers to a script that it does not know.
pub(super) const NOT_THERE: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);

/// A script that runs in the server, in one step.
pub(crate) struct Lua {
    code: &'static str,
    hash: LazyLock<String>,
}

impl Lua {
    pub(crate) const fn new(code: &'static str, hash: fn() -> String) -> Self {
        Self {
            code,
            hash: LazyLock::new(hash),
        }
    }
}

/// The hash by which a server knows a script.
pub(crate) fn hash(code: &str) -> String {
    Script::new(code).get_hash().to_owned()
}

/// A static [`Lua`] of these files, one after the other.
macro_rules! lua {
    ($($file:literal),+) => {{
        const CODE: &str = concat!($(include_str!($file)),+);
        $crate::redis::Lua::new(CODE, || $crate::redis::hash(CODE))
    }};
}
pub(crate) use lua;

/// A command; if it calls a script, together with that script, for a server that does not know it (any more).
pub(crate) struct Call {
    command: Cmd,
    script: Option<&'static Lua>,
}

impl Call {
    pub(crate) fn command(command: Cmd) -> Self {
        Self {
            command,
            script: None,
        }
    }

    /// A call of `script`, to which the arguments are to be added.
    pub(crate) fn script(script: &'static Lua, keys: &[&str]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*script.hash).arg(keys.len()).arg(keys);
        Self {
            command,
            script: Some(script),
        }
    }

    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// A call that asks whether somebody answers for the first key of this one, and does nothing: it calls a script that no
    /// server has, which all answer with [`NOT_THERE`]. None if this one has no key.
    pub(super) fn probe(&self) -> Option<Self> {
        let place = if self.script.is_some() { 3 } else { 1 };
        let Some(Arg::Simple(key)) = self.command.args_iter().nth(place) else {
            return None;
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg("0".repeat(40)).arg(1).arg(key);
        Some(Self::command(command))
    }

    /// Calls it on a connection; a script by its hash, and only if the server does not know that in full.
    pub(crate) async fn on<T: FromRedisValue>(&self, connection: &mut impl ConnectionLike) -> RedisResult<T> {
        let answer = self.command.query_async(connection).await;
        match (&answer, self.script) {
            (Err(error), Some(script)) if error.kind() == NOT_THERE => {
                // Not loaded first: in a Cluster that would go to every node, and one of them may be away.
                let mut command = redis::cmd("EVAL");
                command.arg(script.code);
                for arg in self.command.args_iter().skip(2) {
                    if let Arg::Simple(arg) = arg {
                        command.arg(arg);
                    }
                }
                command.query_async(connection).await
            }
            _ => answer,
        }
    }
}
