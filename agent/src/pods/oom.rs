//! How far down the kernel lets us put a process's OOM score.
//!
//! Lowering `oom_score_adj` needs CAP_SYS_RESOURCE in the initial user namespace
//! (proc_pid_oom_score_adj(5)); in a container, an agent and the runtime beside it often
//! lack it. A container that asks for less than is allowed does not start at all, so
//! what is asked for is raised to what is allowed. Sandboxes are not ours: the runtime
//! chooses their score (containerd: `restrict_oom_score_adj`).

use std::fs;
use std::io;
use std::path::Path;

use seaway_agent_core::qos::LOWEST_OOM_SCORE_ADJ;
use tracing::warn;

const OWN: &str = "/proc/self/oom_score_adj";

/// The lowest score that containers can be given. Says once what that means.
pub(super) fn floor() -> i64 {
    match probe(Path::new(OWN)) {
        Ok(floor) => {
            if floor > LOWEST_OOM_SCORE_ADJ {
                warn!(
                    floor,
                    "OOM scores cannot be lowered (CAP_SYS_RESOURCE), pods get this one at least"
                );
            }
            floor
        }
        Err(error) => {
            warn!(path = OWN, %error, "OOM score cannot be read, pods' scores stay as wanted");
            LOWEST_OOM_SCORE_ADJ
        }
    }
}

/// Tries the lowest score that any pod gets on this process itself, and takes it back.
fn probe(path: &Path) -> io::Result<i64> {
    let text = fs::read_to_string(path)?;
    let own: i64 = text.trim().parse().map_err(io::Error::other)?;
    if own <= LOWEST_OOM_SCORE_ADJ {
        return Ok(own);
    }
    if fs::write(path, LOWEST_OOM_SCORE_ADJ.to_string()).is_err() {
        return Ok(own);
    }
    // Upwards is always allowed.
    fs::write(path, own.to_string())?;
    Ok(LOWEST_OOM_SCORE_ADJ)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP_SYS_RESOURCE: u32 = 24;

    /// The oracle is the process's capabilities.
    #[test]
    fn the_floor_is_what_the_kernel_allows() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
        let effective = u64::from_str_radix(effective.unwrap().trim(), 16).unwrap();
        let before = fs::read_to_string(OWN).unwrap();
        let own: i64 = before.trim().parse().unwrap();

        let found = probe(Path::new(OWN)).unwrap();

        if effective >> CAP_SYS_RESOURCE & 1 == 0 {
            assert_eq!(found, own);
        } else {
            assert_eq!(found, own.min(LOWEST_OOM_SCORE_ADJ));
        }
        assert_eq!(fs::read_to_string(OWN).unwrap(), before, "taken back");
    }

    #[test]
    fn where_it_may_be_lowered_nothing_is_raised() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "0\n").unwrap();
        assert_eq!(probe(file.path()).unwrap(), LOWEST_OOM_SCORE_ADJ);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "0");
        fs::write(file.path(), "-999\n").unwrap();
        assert_eq!(probe(file.path()).unwrap(), -999);
        assert!(probe(Path::new("/nowhere/oom_score_adj")).is_err());
    }
}
