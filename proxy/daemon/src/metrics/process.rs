//! What is measured of the process itself, under the names that all programs with metrics have.
//!
//! Read when somebody asks. What cannot be read has no line: zero would be an answer.

use std::fmt;
use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        if let Some(usage) = Usage::now() {
            usage.tell(encoder)?;
        }
        if let Some(open) = open_files() {
            let help = "Files that are open.";
            tell(encoder, "process_open_fds", None, help, &gauge(open))?;
        }
        if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let help = "How many files may be open.";
            tell(encoder, "process_max_fds", None, help, &gauge(most))?;
        }
        Ok(())
    }
}

fn gauge(value: u64) -> ConstGauge<u64> {
    ConstGauge::new(value)
}

fn tell(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    unit: Option<&Unit>,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, unit, metric.metric_type())?;
    metric.encode(encoder)
}

/// In the units of metrics.
struct Usage {
    cpu: Duration,
    /// Since 1970.
    started: Duration,
    virtual_bytes: u64,
    resident_bytes: u64,
}

impl Usage {
    fn now() -> Option<Self> {
        // The name in it may be anything.
        let stat = fs::read("/proc/self/stat").ok()?;
        let stat = Stat::parse(&String::from_utf8_lossy(&stat))?;
        let boot = boot(&fs::read_to_string("/proc/stat").ok()?)?;
        let a_second = constant(SysconfVar::CLK_TCK)?;
        let time = |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000) / a_second);
        Some(Self {
            cpu: time(stat.cpu),
            // The clock may be set meanwhile, so it is not what it was at the start.
            started: boot + time(stat.started),
            virtual_bytes: stat.virtual_bytes,
            resident_bytes: stat.resident_pages * constant(SysconfVar::PAGE_SIZE)?,
        })
    }

    fn tell(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let cpu = ConstCounter::new(self.cpu.as_secs_f64());
        let help = "Time on a CPU, of the process and of the kernel for it.";
        tell(encoder, "process_cpu", seconds, help, &cpu)?;
        let started = ConstGauge::new(self.started.as_secs_f64());
        let help = "When the process began, in Unix time.";
        tell(encoder, "process_start_time", seconds, help, &started)?;
        let resident = gauge(self.resident_bytes);
        let help = "Memory that is there.";
        tell(encoder, "process_resident_memory", bytes, help, &resident)?;
        let all = gauge(self.virtual_bytes);
        let help = "Memory that has addresses.";
        tell(encoder, "process_virtual_memory", bytes, help, &all)
    }
}

/// Of `/proc/self/stat`; times in ticks, of which the kernel says how many are a second.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Of the process and of the kernel for it.
    cpu: u64,
    /// Since the boot.
    started: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses, of which it may have some itself,
    /// and blanks. All that comes after the last one are numbers, but for a letter.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // As proc(5) counts them: from 1, and the first one here is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu: field(14)?.saturating_add(field(15)?),
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the kernel began, since 1970, as `/proc/stat` says.
fn boot(stat: &str) -> Option<Duration> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

fn constant(name: SysconfVar) -> Option<u64> {
    let value = u64::try_from(sysconf(name).ok()??).ok()?;
    (value > 0).then_some(value)
}

fn open_files() -> Option<u64> {
    let all = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is what they are read from.
    u64::try_from(all).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    const REST: &str = "S 1 7 7 0 -1 4194560 100 0 0 0 30 12 5 6 20 0 3 0 4567 1048576 256 99";

    #[test]
    fn a_name_may_have_blanks_and_parentheses_in_it() {
        let want = Stat {
            cpu: 42,
            started: 4567,
            virtual_bytes: 1_048_576,
            resident_pages: 256,
        };
        for name in ["seaway-proxy", "a b", "a) S 1 2 3", ") (", "", "a)\n) b"] {
            let stat = Stat::parse(&format!("7 ({name}) {REST}\n"));
            assert_eq!(stat.as_ref(), Some(&want), "{name:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        assert_eq!(Stat::parse(""), None);
        let cut = format!("7 (a) {}", REST.split(" 256").next().unwrap());
        assert_eq!(Stat::parse(&cut), None);
        let wrong = format!("7 (a) {REST}").replace("30", "x");
        assert_eq!(Stat::parse(&wrong), None);
        assert_eq!(boot("cpu 1 2\n"), None);
        let at = boot("cpu 1 2\nbtime 1700000000\nprocesses 5\n");
        assert_eq!(at, Some(Duration::from_secs(1_700_000_000)));
    }

    fn scrape() -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(Process));
        encode(&mut text, &registry).unwrap();
        text
    }

    #[track_caller]
    fn value(name: &str) -> f64 {
        let text = scrape();
        let mut lines = text.lines();
        let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        line.parse().unwrap()
    }

    /// What the kernel says elsewhere, for people.
    fn status(name: &str) -> f64 {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
        kib * 1024.0
    }

    #[test]
    fn memory_is_what_the_kernel_says_elsewhere() {
        // Other tests take some meanwhile.
        for (name, of_status) in [
            ("process_resident_memory_bytes", "VmRSS:"),
            ("process_virtual_memory_bytes", "VmSize:"),
        ] {
            let (ours, want) = (value(name), status(of_status));
            let near = want > 0.0 && ours > want / 4.0 && ours < want * 4.0;
            assert!(near, "{name} {ours}, but {of_status} {want}");
        }
    }

    #[test]
    fn time_on_a_cpu_grows_with_work() {
        let (before, started) = (value("process_cpu_seconds_total"), Instant::now());
        while value("process_cpu_seconds_total") <= before {
            assert!(started.elapsed() < Duration::from_mins(1), "{before}");
        }
    }

    #[test]
    fn a_process_of_now_began_not_long_ago() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..6.0 * 3600.0).contains(&age), "{age}");
    }

    #[test]
    fn files_are_open_and_as_many_as_may_be() {
        let (open, most) = (value("process_open_fds"), value("process_max_fds"));
        assert!((3.0..=most).contains(&open), "{open} of {most}");
    }

    #[test]
    fn kinds_are_as_everywhere() {
        let text = scrape();
        let kinds = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
        let kinds: Vec<&str> = kinds.collect();
        let want = [
            "process_cpu_seconds counter",
            "process_start_time_seconds gauge",
            "process_resident_memory_bytes gauge",
            "process_virtual_memory_bytes gauge",
            "process_open_fds gauge",
            "process_max_fds gauge",
        ];
        assert_eq!(kinds, want);
    }
}
