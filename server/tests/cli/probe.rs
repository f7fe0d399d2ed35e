//! `delayline probe`, on a broker that is there.

use super::*;
use crate::rocketmq::RocketMqServers;

/// The levels that the broker of these tests is started with.
const LEVELS: &str = "1s 2s 5s 10s";

fn nameserver() -> String {
    std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR --levels \"{LEVELS}\""
        )
    })
}

/// Whether a warning is not of the tool's doing, but of a full or slow machine's.
fn is_of_the_machine(warning: &str) -> bool {
    // What a busy broker answered too late is sent once more, and so may come twice.
    [
        "the disk of broker-a",
        "had to be sent more than once",
        "came more than once",
    ]
    .iter()
    .any(|own| warning.contains(own))
}

#[test]
fn a_probe_is_printed_for_people() {
    let text = printed(&["probe", "--nameserver", &nameserver(), "--count", "20"]);
    let lines: Vec<_> = text.lines().collect();
    for (at, beginning) in [
        "master   broker-a at ",
        "version  ",
        &format!("levels   {LEVELS}"),
        "timers   ",
        "acl      off",
        "keeps    messages for 3d",
        "probes   10 a second through each level, evenly",
        "",
        "level  delay    sent  arrived  p50 ms  p99 ms  max ms  0 ",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(lines[at].starts_with(beginning), "{beginning:?} is not in {text}");
    }
    for (level, line) in LEVELS
        .split(' ')
        .enumerate()
        .map(|(at, level)| (level, lines[9 + at]))
    {
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(columns[1..4], [level, "20", "20"], "{text}");
        let [p50, p99, max] = [4, 5, 6].map(|column| columns[column].parse::<i64>().unwrap());
        assert!(0 <= p50 && p50 <= p99 && p99 <= max, "{text}");
        assert!(line.contains('█'), "{text}");
    }
    // Beside warnings of the machine there is nothing more, and no colours.
    assert!(
        lines[13..]
            .iter()
            .all(|line| line.is_empty() || is_of_the_machine(line)),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn json_has_what_scripts_ask_for() {
    let arguments = [
        "probe",
        "--nameserver",
        &nameserver(),
        "--levels",
        "2,1,2",
        "--count",
        "10",
        "--json",
    ];
    let json: Value = serde_json::from_str(&printed(&arguments)).unwrap();
    let version = json["version"].as_str().unwrap();
    let [master] = &json["masters"].as_array().unwrap()[..] else {
        panic!("{json}")
    };
    assert_eq!(master["version"], version);
    assert_eq!(
        (&master["name"], &master["levels"], &master["acl"]),
        (&json!("broker-a"), &json!(LEVELS), &json!("off"))
    );
    let level = |level: u64, delay_ms: u64| json!({ "level": level, "delay_ms": delay_ms });
    assert_eq!(
        json["levels"],
        json!([
            level(1, 1_000),
            level(2, 2_000),
            level(3, 5_000),
            level(4, 10_000)
        ])
    );
    let probes = json["probes"].as_array().unwrap();
    assert_eq!(probes.len(), 2);
    for (probe, (level, delay_ms)) in probes.iter().zip([(1, 1_000), (2, 2_000)]) {
        assert_eq!(probe["level"], level);
        assert_eq!(probe["delay_ms"], delay_ms);
        assert_eq!((&probe["sent"], &probe["arrived"]), (&json!(10), &json!(10)));
        let late = |name: &str| probe["late_ms"][name].as_i64().unwrap();
        assert!(0 <= late("p50") && late("p50") <= late("p99") && late("p99") <= late("max"));
    }
    let warnings = json["warnings"].as_array().unwrap();
    assert!(
        warnings
            .iter()
            .all(|warning| is_of_the_machine(warning.as_str().unwrap())),
        "{warnings:?}"
    );
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let nameserver = nameserver();
    for value in ["", "nonsense", "host:0", "a:1;", "-1"] {
        assert_eq!(
            refused(&["probe", &format!("--nameserver={value}")]),
            format!("--nameserver is {value:?}: allowed is HOST:PORT, several separated by semicolons")
        );
    }
    for value in [
        "",
        "0",
        "0,19",
        "-1",
        "+1",
        "1,",
        "1;2",
        "1.5",
        "one",
        "99999999999999999999",
    ] {
        assert_eq!(
            refused(&["probe", "--nameserver", &nameserver, "--levels", value]),
            format!(
                "--levels is {value:?}: allowed are the numbers of levels, from 1, separated by commas, such as 1,2,3"
            )
        );
    }
    assert_eq!(
        refused(&["probe", "--nameserver", &nameserver, "--levels", "1,5"]),
        "--levels has 5: the brokers have the levels 1 to 4"
    );
    for value in ["", "0", "-5", "+5", "100001", "many"] {
        assert_eq!(
            refused(&["probe", "--nameserver", &nameserver, "--count", value]),
            format!("--count is {value:?}: allowed are whole numbers from 1 to 100000")
        );
    }
    let tls = if cfg!(feature = "rocketmq-tls") {
        "--tls-ca <FILE>, "
    } else {
        ""
    };
    assert_eq!(
        refused(&["probe"]),
        format!(
            "the following required arguments were not provided: --nameserver <HOST:PORT>; allowed are \
             --nameserver <HOST:PORT>, --levels <NUMBERS>, --count <N>, --access-key <KEY>, {tls}--json, --color <WHEN>, --help"
        )
    );
    if cfg!(feature = "rocketmq-tls") {
        let file = ["probe", "--nameserver", &nameserver, "--tls-ca", "/no/such/file"];
        let line = refused(&file);
        assert!(
            line.starts_with("--tls-ca is \"/no/such/file\": it cannot be read"),
            "{line}"
        );
    }
    // It may be meant for another tool, and hold a password.
    let line = refused(&["probe", "--nameserver", "redis://user:secret@host"]);
    assert!(!line.contains("secret"), "{line}");
}

#[test]
fn nameservers_that_are_not_there_are_a_failure() {
    // Nothing listens on port 1.
    let output = output(&["probe", "--nameserver", "127.0.0.1:1", "--json"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(1), Vec::new()),
        "{line}"
    );
    assert!(
        line.starts_with("delayline: ") && line.contains("nameservers") && line.lines().count() == 1,
        "{line}"
    );
}

#[test]
fn a_reader_that_has_gone_before_the_report_is_no_error() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let arguments = [
        "probe",
        "--nameserver",
        &nameserver(),
        "--levels",
        "1",
        "--count",
        "1",
    ];
    let output = tool(&arguments).stdout(writer).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn it_ends_when_it_is_interrupted() {
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let arguments = ["probe", "--nameserver", &nameserver(), "--levels", "4"];
        let probe = tool(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let id = probe.id().to_string();
        // Until it listens, a signal would end it as it ends any program.
        let listens = || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let caught = status
                .lines()
                .find_map(|line| line.strip_prefix("SigCgt:"))
                .unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() >> (number - 1) & 1 == 1
        };
        while !listens() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let killed = Command::new("kill").args(["-s", signal, &id]).status().unwrap();
        assert!(killed.success());
        let output = probe.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice(), errors.as_str()),
            (Some(1), &b""[..], "delayline: interrupted\n")
        );
    }
}

#[test]
fn unlike_masters_are_shown_and_each_level_is_probed_where_it_is() {
    let servers = RocketMqServers::start(&["--masters", "2", "--levels", "2s 1s", "--levels", "1s 3s 40s"]);
    let text = printed(&["probe", "--nameserver", &servers.nameserver, "--count", "16"]);
    for expected in [
        "master   broker-a at ",
        "levels   2s 1s\n",
        "master   broker-b at ",
        "levels   1s 3s 40s\n",
        "\n    1     1s      16       16  ",
        "\n    2     2s      16       16  ",
        "\n    3     3s      16       16  ",
        "unlike levels, so each wake-up goes to one that has its level, and levels are numbered here by length: \
         broker-a: 2s 1s; broker-b: 1s 3s 40s\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    assert!(!text.contains("40s      16"), "{text}");
}

#[test]
fn an_account_without_its_secret_is_refused() {
    let mut command = tool(&["probe", "--nameserver", "127.0.0.1:9", "--access-key", "shop"]);
    let output = command.env_remove("DELAYLINE_ROCKETMQ_SECRET").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("DELAYLINE_ROCKETMQ_SECRET is not set"), "{line}");
}

#[test]
fn an_account_that_brokers_know_may_probe_and_its_secret_is_never_shown() {
    let servers = RocketMqServers::start(&["--acl", "--levels", "1s 2s"]);
    let (access, secret) = servers.account("admin");
    let arguments = [
        "probe",
        "--nameserver",
        &servers.nameserver,
        "--count",
        "5",
        "--access-key",
        &access,
    ];
    let asked = |secret: &str| {
        let mut command = tool(&arguments);
        command.env("DELAYLINE_ROCKETMQ_SECRET", secret).output().unwrap()
    };
    let known = asked(&secret);
    let unknown = asked("another-secret");
    let told = [&known.stdout, &known.stderr, &unknown.stdout, &unknown.stderr]
        .map(|text| String::from_utf8_lossy(text));
    assert_eq!(known.status.code(), Some(0), "{told:?}");
    assert!(
        told[0].contains("acl      authentication and authorization"),
        "{told:?}"
    );
    assert_eq!(unknown.status.code(), Some(1), "{told:?}");
    assert!(
        told.iter()
            .all(|text| !text.contains(&secret) && !text.contains("another-secret")),
        "{told:?}"
    );
}
