//! The benches can be run. How fast anything is, is not judged here.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;

use seaway_testbed::{bin, require_root};
use serde_json::{Value, json};

/// What a bench has left and said.
struct Ran {
    report: Value,
    said: String,
}

fn quickly(bench: &str) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.json");
    let output = Command::new(bin("seaway-bench"))
        .env("SEAWAY_BIN_DIR", bin("seaway-cni").parent().unwrap())
        .args([bench, "--quick", "--report-only", "--output", "json"])
        .arg("--output-file")
        .arg(&file)
        .arg("--proxy")
        .arg(bin("seaway-proxy"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    Ran { report, said }
}

#[test]
fn bench_cni_runs_and_pods_leave_nothing() {
    if !require_root() {
        return;
    }
    let Ran { report, said } = quickly("cni");
    let rows = report["rows"].as_array().unwrap();
    let row = |what: &str| rows.iter().find(|row| row["what"] == what);
    let left = row("left of all pods").unwrap();
    assert_eq!(left["ours"], json!(0.0), "{said}");
    assert_eq!(left["holds"], json!(true));
    for what in [
        "ADD, dual stack",
        "DEL",
        "16 ADDs at once",
        "memory of a call",
    ] {
        let row = row(what).unwrap();
        assert!(row["ours"].as_f64().unwrap() > 0.0, "{row}");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn bench_proxy_runs_and_packets_pass() {
    if !require_root() {
        return;
    }
    let Ran { report, said } = quickly("proxy");
    assert_eq!(report["about"]["services"], json!(50));
    let rows = report["rows"].as_array().unwrap();
    for what in [
        "full sync, lists delivered",
        "full sync, peak memory",
        "endpoint change, longest",
        "restart, from exec",
        "first packet, cluster IP",
        "first packet, NodePort",
        "refusal, no endpoints",
    ] {
        let row = rows.iter().find(|row| row["what"] == what).unwrap();
        assert!(row["ours"].as_f64().unwrap() > 0.0, "{row}");
        assert!(said.contains(what), "{said}");
    }
    assert!(
        rows.iter().any(|row| row["what"] == "CPU at idle"),
        "{said}"
    );
}
