//! Changes every request before it is sent, and every answer before the client reads it.

use std::net::SocketAddr;

use rocketmq_client_rust::AclClientRPCHook;
use rocketmq_error::SharedError;
use rocketmq_protocol::protocol::remoting_command::RemotingCommand;
use rocketmq_transport::api::RPCHook;

use super::credentials::Credentials;
use super::failure::NO_PERMISSION;
use super::route;

/// The request for a topic's route.
pub(super) const ROUTE: i32 = 105;
/// The request for the brokers of a cluster.
const CLUSTER: i32 = 106;
/// A successful answer.
pub(super) const SUCCESS: i32 = 0;
/// The answer to an unexpected error in a server.
const SYSTEM_ERROR: i32 = 1;

/// Signs requests, and adapts the answers of servers before 5.0 to those of later ones.
pub(super) struct Hook {
    signer: Option<AclClientRPCHook>,
}

impl Hook {
    /// Makes a hook; without credentials, nothing is signed.
    pub(super) fn new(credentials: Option<&Credentials>) -> Self {
        Self {
            signer: credentials.map(Credentials::signer),
        }
    }
}

impl RPCHook for Hook {
    fn do_before_request(
        &self,
        server: SocketAddr,
        request: &mut RemotingCommand,
    ) -> Result<(), SharedError> {
        match &self.signer {
            Some(signer) => signer.do_before_request(server, request),
            None => Ok(()),
        }
    }

    fn do_after_response(
        &self,
        _: SocketAddr,
        request: &RemotingCommand,
        answer: &mut RemotingCommand,
    ) -> Result<(), SharedError> {
        if answer.code() == SUCCESS
            && [ROUTE, CLUSTER].contains(&request.code())
            && let Some(sanitized) = answer.body().and_then(|body| route::sanitized(body))
        {
            answer.set_body_mut_ref(sanitized);
        }
        if is_refusal(answer) {
            answer.set_code_ref(NO_PERMISSION);
        }
        Ok(())
    }
}

/// Says whether the access control of a broker before 5.0 refuses a request: it throws an exception, which the broker
/// reports like any other defect, so that only the text distinguishes it from a transient one.
fn is_refusal(answer: &RemotingCommand) -> bool {
    answer.code() == SYSTEM_ERROR
        && answer
            .remark()
            .is_some_and(|remark| remark.starts_with("org.apache.rocketmq.acl.common.AclException"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(code: i32, answer: RemotingCommand) -> RemotingCommand {
        let mut answer = answer;
        Hook::new(None)
            .do_after_response(
                ([127, 0, 0, 1], 9876).into(),
                &RemotingCommand::create_remoting_command(code),
                &mut answer,
            )
            .unwrap();
        answer
    }

    #[test]
    fn routes_are_sanitized_and_other_answers_are_left_as_they_are() {
        let answer = || {
            RemotingCommand::create_response_command_with_code(SUCCESS)
                .set_body(&br#"{"queueDatas":[{"topicSynFlag":0}]}"#[..])
        };
        let route = after(ROUTE, answer());
        assert_eq!(
            route.body().unwrap(),
            &br#"{"queueDatas":[{"topicSysFlag":0}]}"#[..]
        );
        assert_eq!(after(11, answer()).body(), answer().body());
    }

    #[test]
    fn a_refusal_of_an_old_broker_is_one_and_its_other_defects_are_none() {
        let answer = |remark: &str| {
            RemotingCommand::create_response_command_with_code_remark(SYSTEM_ERROR, remark.to_owned())
        };
        let refused = "org.apache.rocketmq.acl.common.AclException: No acl config for shop";
        assert_eq!(after(10, answer(refused)).code(), NO_PERMISSION);
        for other in [
            "",
            "java.io.IOException: org.apache.rocketmq.acl.common.AclException",
        ] {
            assert_eq!(after(10, answer(other)).code(), SYSTEM_ERROR, "{other}");
        }
    }
}
