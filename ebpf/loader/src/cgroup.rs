//! Finding the cgroup whose sockets are served.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};

use crate::Error;
use crate::error::file;

/// Inode number of the root of every kernfs, thus of the whole hierarchy;
/// `kernfs_create_root` in the kernel.
const ROOT_INODE: u64 = 1;

/// A cgroup that programs are attached to.
#[derive(Debug)]
pub(crate) struct Cgroup {
    pub(crate) dir: File,
    pub(crate) path: PathBuf,
    /// What the kernel calls it; the inode number, `cgroup_id` in the kernel.
    pub(crate) id: u64,
}

impl Cgroup {
    /// The configured one, or the root of the hierarchy.
    pub(crate) fn find(configured: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = configured {
            return Self::open(path);
        }
        let table = "/proc/self/mountinfo";
        let mounts = fs::read_to_string(table).map_err(file("read", table))?;
        let mut partial = None;
        for path in cgroup2_mounts(&mounts) {
            let cgroup = Self::open(&path)?;
            if cgroup.id == ROOT_INODE {
                return Ok(cgroup);
            }
            partial = Some(path);
        }
        Err(match partial {
            Some(path) => Error::NotCgroupRoot { path },
            None => Error::NoCgroup2,
        })
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let dir = File::open(path).map_err(file("open cgroup", path))?;
        let stat = fstatfs(&dir)
            .map_err(io::Error::from)
            .map_err(file("stat cgroup", path))?;
        let metadata = dir.metadata().map_err(file("stat cgroup", path))?;
        if stat.filesystem_type() != CGROUP2_SUPER_MAGIC || !metadata.is_dir() {
            return Err(Error::NotCgroup2 {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            dir,
            path: path.to_owned(),
            id: metadata.ino(),
        })
    }
}

/// Mount points of cgroup2 in the text of `/proc/self/mountinfo`; proc(5).
fn cgroup2_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let fstype = right.split(' ').next()?;
        let mount_point = left.split(' ').nth(4)?;
        (fstype == "cgroup2").then(|| PathBuf::from(mount_point))
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 20 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/unified rw,relatime shared:10 - cgroup2 cgroup2 rw
";

    #[test]
    fn hybrid_hierarchy_has_one_cgroup2() {
        assert_eq!(
            cgroup2_mounts(HYBRID),
            [PathBuf::from("/sys/fs/cgroup/unified")]
        );
    }

    #[test]
    fn mount_without_optional_fields_is_found() {
        let line = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(cgroup2_mounts(line), [PathBuf::from("/sys/fs/cgroup")]);
    }

    #[test]
    fn other_file_systems_are_not_cgroups() {
        assert!(cgroup2_mounts("1 0 8:1 / / rw - ext4 /dev/vda rw\nnonsense\n").is_empty());
        let tmp = std::env::temp_dir();
        assert!(matches!(Cgroup::find(Some(&tmp)), Err(Error::NotCgroup2 { path }) if path == tmp));
    }
}
