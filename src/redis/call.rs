//! Describes a command or a script, and calls it.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{
    Arg, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ServerErrorKind, ToRedisArgs, Value,
};

/// The error of a server for a script that it does not know.
pub(super) const NOT_THERE: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
/// The error of a server for what the account may not do.
pub(super) const REFUSED: ErrorKind = ErrorKind::Server(ServerErrorKind::NoPerm);

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

/// Makes a static [`Lua`] of these files, one after the other.
macro_rules! lua {
    ($($file:literal),+) => {{
        const CODE: &str = concat!($(include_str!($file)),+);
        $crate::redis::Lua::new(CODE, || $crate::redis::hash(CODE))
    }};
}
pub(crate) use lua;

/// A command; if it calls a script, together with that script, for a server that does not know it.
pub(crate) struct Call {
    command: Cmd,
    script: Option<&'static Lua>,
    confirmation: Option<Confirmation>,
    is_once: bool,
}

/// How many replicas must have the writes of a call, and how long to wait for them.
#[derive(Clone, Copy, Debug)]
struct Confirmation {
    replicas: u32,
    within: Duration,
}

impl Call {
    pub(crate) fn command(command: Cmd) -> Self {
        Self {
            command,
            script: None,
            confirmation: None,
            is_once: false,
        }
    }

    /// Makes a call of `script`, without arguments yet.
    pub(crate) fn script(script: &'static Lua, keys: &[&str]) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*script.hash).arg(keys.len()).arg(keys);
        Self {
            command,
            script: Some(script),
            confirmation: None,
            is_once: false,
        }
    }

    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// Makes a call that checks whether a server answers for the first key of this one, and does nothing: it calls a
    /// script that no server has, which all answer with [`NOT_THERE`]. None if this call has no key.
    pub(super) fn probe(&self) -> Option<Self> {
        let place = if self.script.is_some() { 3 } else { 1 };
        let Some(Arg::Simple(key)) = self.command.args_iter().nth(place) else {
            return None;
        };
        let mut command = redis::cmd("EVALSHA");
        command.arg("0".repeat(40)).arg(1).arg(key);
        Some(Self::command(command))
    }

    /// Makes it fail unless so many replicas confirm within this time that they have its writes. It is unknown then
    /// whether it took effect.
    pub(crate) fn confirmed_by(&mut self, replicas: u32, within: Duration) {
        self.confirmation = Some(Confirmation { replicas, within });
    }

    /// Forbids a repeat if its answer is lost: it may have been done.
    pub(crate) fn once(&mut self) {
        self.is_once = true;
    }

    pub(super) fn is_once(&self) -> bool {
        self.is_once
    }

    /// Makes the call on a connection; a script by its hash, and in full only if the server does not know that.
    pub(crate) async fn on<T: FromRedisValue>(&self, connection: &mut impl ConnectionLike) -> RedisResult<T> {
        let answer = self.query(&self.command, connection).await;
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
                self.query(&command, connection).await
            }
            _ => answer,
        }
    }

    async fn query<T: FromRedisValue>(
        &self,
        command: &Cmd,
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<T> {
        let Some(Confirmation { replicas, within }) = self.confirmation else {
            return command.query_async(connection).await;
        };
        // Both at once: `WAIT` is about the writes of its own connection.
        let mut both = redis::pipe();
        both.add_command(command.clone());
        both.cmd("WAIT")
            .arg(replicas)
            .arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let mut answers = connection.req_packed_commands(&both, 0, 2).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil).extract_error();
        let answer = next()?;
        let confirmed: u32 = redis::from_redis_value(next()?)?;
        if confirmed < replicas {
            let told = format!("{confirmed} of {replicas} replicas confirmed within {within:?}");
            return Err(RedisError::from((
                ErrorKind::Extension,
                "UNCONFIRMED",
                format!("whether it will last is not known: {told}"),
            )));
        }
        Ok(redis::from_redis_value(answer)?)
    }
}
