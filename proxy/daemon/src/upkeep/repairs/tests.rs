use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

use super::*;

/// What is logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The warnings that come of these looks, one after the other.
fn warnings(looks: &[Report]) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let plugin = Arc::new(Plugin::new(None, PathBuf::new()));
    let mut repairs = Repairs::new(plugin, Metrics::default(), Arc::default());
    tracing::subscriber::with_default(subscriber, || {
        for report in looks {
            repairs.tell(report);
        }
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let warnings = text.lines().filter(|line| line.contains("WARN"));
    warnings.map(str::to_owned).collect()
}

fn failing(errors: &[&str]) -> Report {
    Report {
        failures: errors.iter().map(|error| (*error).to_owned()).collect(),
        ..Report::default()
    }
}

#[test]
fn a_repair_that_keeps_failing_is_told_once() {
    let a = "repair network a: locked";
    let b = "accept forwarded packets: refused";
    let looks = [
        failing(&[a]),
        failing(&[a]),
        failing(&[a, b]),
        failing(&[b]),
        // Well again, and not any more.
        failing(&[]),
        failing(&[b]),
    ];
    let told = warnings(&looks);
    assert_eq!(told.len(), 3, "{told:#?}");
    for (line, error) in told.iter().zip([a, b, b]) {
        assert!(line.contains(error), "{line}");
    }
}
