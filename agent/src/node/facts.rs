//! What this machine is, read from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::SysconfVar;

/// Facts about the machine; those that the kernel does not tell are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// From the firmware, or the machine id.
    pub system_uuid: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of os-release.
    pub os_image: String,
    /// As Go names it: `amd64`.
    pub architecture: &'static str,
    /// Processors that are online.
    pub cpus: u64,
    /// Memory in total.
    pub memory_bytes: u64,
    /// Memory that could be had without swapping.
    pub memory_available_bytes: u64,
    /// Size of the file system that pods' volumes are on.
    pub disk_bytes: u64,
    /// What is free of it.
    pub disk_available_bytes: u64,
    /// Inodes of that file system; 0 where it has no such number.
    pub inodes: u64,
    /// What is free of them.
    pub inodes_available: u64,
    /// Huge pages by page size in kB: how many bytes are set aside.
    pub hugepages_bytes: BTreeMap<u64, u64>,
}

impl Facts {
    /// Reads them; `root_dir` says which file system pods use.
    pub fn read(root_dir: &Path) -> Self {
        let machine_id = text("/etc/machine-id");
        let system_uuid = match text("/sys/class/dmi/id/product_uuid") {
            uuid if uuid.is_empty() => machine_id.clone(),
            uuid => uuid,
        };
        let meminfo = text("/proc/meminfo");
        let mut facts = Self {
            machine_id,
            system_uuid,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel_version: text("/proc/sys/kernel/osrelease"),
            os_image: os_image(&text("/etc/os-release")),
            architecture: architecture(),
            cpus: cpus(),
            memory_bytes: meminfo_bytes(&meminfo, "MemTotal"),
            memory_available_bytes: meminfo_bytes(&meminfo, "MemAvailable"),
            hugepages_bytes: hugepages(Path::new("/sys/kernel/mm/hugepages")),
            ..Self::default()
        };
        facts.read_disk(root_dir);
        facts
    }

    fn read_disk(&mut self, root_dir: &Path) {
        // The directory may not be there yet; its nearest ancestor is on the same disk.
        let existing = root_dir
            .ancestors()
            .find(|path| path.exists())
            .unwrap_or(Path::new("/"));
        if let Ok(disk) = statvfs(existing) {
            self.disk_bytes = disk.blocks() * disk.fragment_size();
            self.disk_available_bytes = disk.blocks_available() * disk.fragment_size();
            self.inodes = disk.files();
            self.inodes_available = disk.files_available();
        }
    }
}

/// A small file of the kernel or the distribution; empty where there is none.
fn text(path: &str) -> String {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn os_image(os_release: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(
            || "Linux".to_owned(),
            |name| name.trim_matches(['"', '\'']).to_owned(),
        )
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn cpus() -> u64 {
    nix::unistd::sysconf(SysconfVar::_NPROCESSORS_ONLN)
        .ok()
        .flatten()
        .and_then(|count| u64::try_from(count).ok())
        .unwrap_or(1)
}

/// One line of proc_meminfo(5), which counts in kB (meaning KiB).
fn meminfo_bytes(meminfo: &str, key: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .map_or(0, |kib| kib * 1024)
}

/// `hugepages-2048kB/nr_hugepages` and the like.
fn hugepages(directory: &Path) -> BTreeMap<u64, u64> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let size = name
                .to_str()?
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?;
            let size: u64 = size.parse().ok()?;
            let pages = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((size, pages.trim().parse::<u64>().ok()? * size * 1024))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_kib() {
        let meminfo = "MemTotal:       16 kB\nMemFree:  1 kB\nMemAvailable:   8 kB";
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), 16 * 1024);
        assert_eq!(meminfo_bytes(meminfo, "MemAvailable"), 8 * 1024);
        assert_eq!(meminfo_bytes(meminfo, "SwapTotal"), 0);
    }

    #[test]
    fn os_image_is_the_pretty_name() {
        assert_eq!(os_image("ID=x\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
        assert_eq!(os_image("ID=x"), "Linux");
    }

    #[test]
    fn hugepages_by_size() {
        let directory = tempfile::tempdir().unwrap();
        let sized = directory.path().join("hugepages-2048kB");
        fs::create_dir(&sized).unwrap();
        fs::write(sized.join("nr_hugepages"), "3\n").unwrap();
        assert_eq!(
            hugepages(directory.path()),
            BTreeMap::from([(2048, 6 * 1024 * 1024)])
        );
    }

    #[test]
    fn this_machine_has_what_every_linux_has() {
        let facts = Facts::read(Path::new("/nowhere/yet"));
        assert!(
            facts.cpus > 0 && facts.memory_bytes > 0 && facts.disk_bytes > 0,
            "{facts:?}"
        );
        assert!(
            !facts.boot_id.is_empty() && !facts.kernel_version.is_empty(),
            "{facts:?}"
        );
    }
}
