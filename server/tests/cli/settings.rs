//! What flags, the environment and a file say together, and what of it is told to be wrong.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::tool;

const SHA256: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn serve(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = tool(&[&["serve", "--check"], arguments].concat());
    command.current_dir(folder).envs(variables.iter().copied());
    command
}

fn said(output: &Output) -> String {
    let said = if output.status.success() {
        &output.stdout
    } else {
        &output.stderr
    };
    String::from_utf8(said.clone()).unwrap()
}

fn folder(file: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f.toml"), file).unwrap();
    folder
}

/// What is said where arguments and variables cannot be used together, without a file.
#[track_caller]
fn wrong(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = folder("");
    let output = serve(folder.path(), arguments, variables).output().unwrap();
    let said = said(&output);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{arguments:?} {variables:?}: {said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[track_caller]
fn fine(arguments: &[&str], variables: &[(&str, &str)]) {
    let folder = folder("");
    let output = serve(folder.path(), arguments, variables).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let folder = folder("[http]\nlisten = \"in the file\"");
    let file = &["--config", "f.toml"][..];
    let with_flag = [file, &["--listen", "as a flag"]].concat();
    let variable = [("DELAYLINE__HTTP__LISTEN", "in the environment")];
    for (arguments, variables, expected) in [
        (file, &[][..], "f.toml line 2: http.listen is \"in the file\""),
        (
            file,
            &variable,
            "DELAYLINE__HTTP__LISTEN: http.listen is \"in the environment\"",
        ),
        (&with_flag, &variable, "--listen: http.listen is \"as a flag\""),
    ] {
        let said = said(&serve(folder.path(), arguments, variables).output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_mistake_beside_the_rest_names_what_gave_it() {
    let folder = folder("[http]\nlisten = \"127.0.0.1:0\"\n[kinds.a]\ndeliver = { topic = \"t\" }");
    let said = |arguments: &[&str]| {
        let arguments = [&["--config", "f.toml"], arguments].concat();
        said(&serve(folder.path(), &arguments, &[]).output().unwrap())
    };
    // The file's own.
    assert!(said(&[]).contains("f.toml line 4: kinds.\"a\" is delivered to a topic"));
    let open = said(&["--listen", "0.0.0.0:0"]);
    assert!(
        open.contains("--listen: http.listen is \"0.0.0.0:0\", which other machines can reach"),
        "{open}"
    );
    let token = format!("a={SHA256}");
    let twice = said(&["--tokens", &token, "--tokens", &token]);
    assert!(twice.contains("--tokens: http.tokens has \"a\" twice"), "{twice}");
    let kinds = said(&["--set", "kinds={\"\" = { deliver = \"pull\" }}"]);
    assert!(
        kinds.contains("--set kinds: ") && kinds.contains("1 to 100 bytes"),
        "{kinds}"
    );
}

#[test]
fn each_shape_of_a_value_can_be_said() {
    let tokens = format!("[{{ name = \"ops\", sha256 = \"{SHA256}\", may = [\"read\"] }}]");
    fine(
        &[
            "--store",
            "sqlite:tasks.db",
            "--listen",
            "0.0.0.0:80",
            "--tokens",
            &format!("a={SHA256}"),
            "--set",
            "worker.stop_timeout=5s",
            "--set",
            "http.body_limit=1000",
        ],
        &[
            ("DELAYLINE__HISTORY", "all"),
            (
                "DELAYLINE__KINDS",
                "{ \"order.cancel\" = { deliver = \"pull\", attempts = 3 } }",
            ),
            ("DELAYLINE__HTTP__TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
            ("DELAYLINE__HTTP__TOKENS", &tokens),
            ("DELAYLINE__WEBHOOKS__ALLOW", "[\"billing.internal\"]"),
            ("DELAYLINE__GATEWAY__REPLIES", ""),
            ("DELAYLINE__ROCKETMQ__NAMESERVER", "127.0.0.1:9876"),
            ("DELAYLINE_PORT", "tcp://10.0.0.1:7700"),
        ][..if cfg!(feature = "rocketmq") { 8 } else { 5 }],
    );
    for (name, value, expected) in [
        (
            "HTTP__BODY_LIMIT",
            "much",
            "invalid type: a text, expected a whole number",
        ),
        (
            "HTTP__TRUSTED_PROXIES",
            "10.0.0.7,proxy",
            "trusted_proxies has \"proxy\"",
        ),
        ("KINDS", "pull", "kinds is not shown, and no table"),
        ("KINDS", "{ a = {} }", "missing field `deliver`"),
        ("KINDS", "{ a = ", "kinds is not shown, and no TOML"),
        (
            "KINDS",
            "{}\nhunter2 = 1",
            "kinds is not shown, and no TOML: it is more than one value",
        ),
        ("HTTP__TOKENS", "hunter2", "allowed are NAME=SHA256"),
        ("HTTP__TOKENS", "a=hunter2", "64 hexadecimal digits"),
        ("HTTP__TOKENS", "[{ name = \"a\" }]", "missing field `sha256`"),
        ("STORE__URL", "", "store.url is empty"),
        ("STORE__URI", "x", "perhaps DELAYLINE__STORE__URL is meant"),
        ("Z", "x", "allowed are DELAYLINE__HISTORY, DELAYLINE__KINDS, "),
        ("ROCKETMQ__TOPIC", "t", "missing field `nameserver`"),
    ] {
        let name = format!("DELAYLINE__{name}");
        let said = wrong(&[], &[(&name, value)]);
        assert!(
            said.starts_with(&format!("delayline: {name}: ")) && said.contains(expected),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
    for (set, said) in [
        (
            "http.lisen=x",
            "--set: \"http.lisen\" is no setting: perhaps http.listen is meant",
        ),
        (
            "http.connection_limit=0",
            "--set http.connection_limit: invalid value: integer `0`, expected a whole number from 1",
        ),
    ] {
        assert_eq!(wrong(&["--set", set], &[]), format!("delayline: {said}\n"));
    }
    assert!(wrong(&["--set", "hunter2"], &[]).contains("allowed is SETTING=VALUE"));
    let twice = wrong(&["--listen", "a", "--set", "http.listen=b"], &[]);
    assert!(
        twice.contains("http.listen is given by --listen as well"),
        "{twice}"
    );
}

#[test]
fn a_secret_comes_from_a_file_and_stays_as_it_is() {
    let folder = folder("");
    let secret = folder.path().join("secret");
    let check = |content: &str| {
        std::fs::write(&secret, content).unwrap();
        let variable = ("DELAYLINE__HTTP__LISTEN_FILE", secret.to_str().unwrap());
        said(&serve(folder.path(), &[], &[variable]).output().unwrap())
    };
    assert_eq!(check("127.0.0.1:0\n"), "the configuration can be used\n");
    assert!(
        check("127.0.0.1:0\n\n").contains("DELAYLINE__HTTP__LISTEN_FILE: http.listen is \"127.0.0.1:0\\n\"")
    );
    // It is no file of ours, in which that would be a variable.
    assert!(check("${HOME}").contains("http.listen is \"${HOME}\""));
    let both = [
        ("DELAYLINE__HTTP__LISTEN", "127.0.0.1:0"),
        ("DELAYLINE__HTTP__LISTEN_FILE", secret.to_str().unwrap()),
    ];
    assert!(wrong(&[], &both).contains("allowed is one of both"));
    let missing = wrong(&[], &[("DELAYLINE__STORE__URL_FILE", "/no/such/secret")]);
    assert!(
        missing.contains("DELAYLINE__STORE__URL_FILE: \"/no/such/secret\" cannot be read"),
        "{missing}"
    );
}

#[test]
fn a_store_that_is_wrong_is_told_by_its_flag_and_not_shown() {
    for (arguments, variables, by) in [
        (&["--store", "oracle://u:hunter2@h"][..], &[][..], "--store"),
        (
            &[],
            &[("DELAYLINE__STORE__URL", "postgres:hunter2")],
            "DELAYLINE__STORE__URL",
        ),
    ] {
        let said = wrong(arguments, variables);
        assert!(
            said.starts_with(&format!("delayline: {by} is not shown")) && !said.contains("hunter2"),
            "{said}"
        );
    }
}

#[cfg(feature = "redis")]
#[test]
fn what_a_client_refuses_is_told_by_its_flag() {
    let said = wrong(&["--redis", "memcached://:hunter2@h"], &[]);
    assert!(said.starts_with("delayline: --redis: redis url is"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let said = wrong(&["--store", "redis://:hunter2@"], &[]);
    assert!(
        said.starts_with("delayline: --store: redis url is") && !said.contains("hunter2"),
        "{said}"
    );
    if cfg!(feature = "rocketmq") {
        let said = wrong(&["--nameserver", "broker.example"], &[]);
        assert!(said.contains("--nameserver: nameservers is"), "{said}");
        let said = wrong(
            &["--nameserver", "h:1", "--targets", "t"],
            &[("DELAYLINE__ROCKETMQ__GROUP", "a b")],
        );
        assert!(said.contains("DELAYLINE__ROCKETMQ__GROUP: group is"), "{said}");
    }
}

#[cfg(feature = "rocketmq")]
#[test]
fn a_nameserver_without_a_file_makes_a_gateway() {
    fine(&["--nameserver", "127.0.0.1:9876"], &[]);
    // There is one: it knows by the history what it has dealt with.
    let history = wrong(
        &["--nameserver", "127.0.0.1:9876"],
        &[("DELAYLINE__HISTORY", "off")],
    );
    assert!(
        history.contains("gateway is there, and history is \"off\""),
        "{history}"
    );
    // With an account it could send where its senders may not.
    let account = [
        ("DELAYLINE__ROCKETMQ__ACCESS_KEY", "a"),
        ("DELAYLINE__ROCKETMQ__SECRET_KEY", "hunter2"),
    ];
    let said = wrong(&["--nameserver", "127.0.0.1:9876"], &account);
    assert!(
        said.contains("--nameserver: gateway.targets is missing") && !said.contains("hunter2"),
        "{said}"
    );
    fine(
        &["--nameserver", "127.0.0.1:9876", "--targets", "order_*"],
        &account,
    );
    // In a file there is a gateway only if it says so.
    let folder = folder("history = \"off\"");
    let arguments = ["--config", "f.toml", "--nameserver", "127.0.0.1:9876"];
    let output = serve(folder.path(), &arguments, &[]).output().unwrap();
    assert!(output.status.success(), "{}", self::said(&output));
    // Half an account is none, which is told.
    let half = wrong(
        &["--nameserver", "127.0.0.1:9876", "--targets", "t"],
        &account[1..],
    );
    assert!(
        half.contains("DELAYLINE__ROCKETMQ__SECRET_KEY: rocketmq has") && !half.contains("hunter2"),
        "{half}"
    );
    let alone = wrong(&["--targets", "order_*"], &[]);
    assert!(
        alone.contains("--targets: gateway is there, and there is no [rocketmq]")
            && alone.contains("--nameserver"),
        "{alone}"
    );
}
