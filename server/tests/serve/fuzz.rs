//! The interface, as it is met by a fuzzer that has read its description: <https://schemathesis.io>.

use std::process::Command;

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::bulk::schedule_many;
use crate::python::{files, python};
use crate::server::Server;
use crate::setting::setting;

/// About how many requests are made, unless `DELAYLINE_FUZZ_CASES` says otherwise.
const USUAL_CASES: u64 = 2_500;

/// The methods of all paths that are described.
fn count_requests(described: &Value) -> u64 {
    let paths = described["paths"].as_object().unwrap().values();
    let methods = paths.map(|path| path.as_object().unwrap().len() as u64);
    methods.sum()
}

#[tokio::test]
async fn whatever_is_asked_is_answered_as_it_is_described() {
    let cases = setting("DELAYLINE_FUZZ_CASES").unwrap_or(USUAL_CASES);
    let seed = setting("DELAYLINE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("DELAYLINE_FUZZ_SEED={seed} DELAYLINE_FUZZ_CASES={cases} repeats this");
    let python = python().await;
    let server = Server::start();
    // It would not make as many tasks.
    schedule_many(&server, "many", 1_001).await;
    let filter = serde_json::json!({"filter": {"kind": "many"}});
    let bulk = server.post("/v1/tasks:cancel", filter).await.body["id"].clone();
    let bulk = bulk.as_str().unwrap().to_owned();
    let requests = count_requests(&server.get("/openapi.json").await.body);
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let mut command = Command::new(python);
    command
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(files().join("fuzz.toml"))
        .args(["run", "--no-color", "--report", "json", "--report-json-path"])
        .arg(&report)
        .args(["--seed", &seed.to_string()])
        .args(["--max-examples", &cases.div_ceil(requests).to_string()])
        .arg(format!("{}/openapi.json", server.url))
        .env("SCHEMATHESIS_HOOKS", files().join("fuzz.py"))
        .env("DELAYLINE_BULK", bulk)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path());
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("{said}");
    assert!(output.status.success(), "it has found something, see above");

    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert!(
        report["test_cases"]["generated"].as_u64() >= Some(cases),
        "{report}"
    );
    let accepted = report["valid_rates"].as_object().unwrap();
    for (request, phases) in accepted {
        let count =
            |phase: &Value| phase["accepted"].as_u64().unwrap() + phase["conflicts"].as_u64().unwrap();
        let done: u64 = phases.as_object().unwrap().values().map(count).sum();
        assert!(done > 0, "{request} was never done, nor too late: {report}");
    }
    assert_eq!(accepted.len() as u64, requests, "{report}");
    assert_eq!(server.get("/readyz").await.status, 200);
    let log = server.log();
    assert!(
        !log.contains("panicked") && !log.contains("could not be answered"),
        "{log}"
    );
}
