//! Settings of a gateway that could not work.

use crate::server::check;

#[test]
fn a_gateway_that_could_not_work_is_refused_by_line() {
    let brokers = "[rocketmq]\nnameserver = \"127.0.0.1:9876\"\n";
    for (config, said) in [
        ("[gateway]\ninbox = \"in\"\n".to_owned(), "there is no [rocketmq]"),
        (
            format!("{brokers}[gateway]\nroutes = {{ delayline_in = \"x\" }}\n"),
            "the inbox",
        ),
        (
            format!("{brokers}[gateway]\nroutes = {{ later = \"delayline_in\" }}\n"),
            "consumes itself",
        ),
        (
            format!("{brokers}[gateway]\ntargets = [\"a*b\"]\n"),
            "gateway.targets has \"a*b\"",
        ),
        (
            format!("{brokers}[gateway]\nreplies = [\"a*b\"]\n"),
            "gateway.replies has \"a*b\"",
        ),
        (
            format!("{brokers}[gateway]\nroutes = {{ later = {{ to = \"orders\", kind = \"message\" }} }}\n"),
            "a kind of its own",
        ),
        (
            format!("{brokers}[gateway]\nroutes = {{ later = {{ to = \"orders\", keys = \"KEYS\" }} }}\n"),
            "unknown field `keys`",
        ),
        (format!("{brokers}[gateway]\nkey = \"TAGS\"\n"), "unknown variant"),
        (
            format!("history = \"off\"\n{brokers}[gateway]\n"),
            "allowed with a gateway are changes and all",
        ),
        (
            format!("{brokers}[gateway]\ntarget = []\n"),
            "unknown field `target`",
        ),
        (
            format!("{brokers}[gateway]\nkinds = [\"a\"]\n[kinds.a]\ndeliver = \"pull\"\n"),
            "allowed is one of both",
        ),
    ] {
        let output = check(&config);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && error.contains(said) && error.contains(" line "),
            "{config}: {error}"
        );
    }
}
