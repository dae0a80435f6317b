//! The few mounts that volumes need, and finding them again after a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Mounts a tmpfs at `dir` unless one is there already. `size` is in bytes.
pub(super) fn ensure_tmpfs(dir: &Path, size: Option<u64>) -> io::Result<()> {
    if is_mount_point(dir)? {
        return Ok(());
    }
    let options = size.map_or_else(
        || "mode=0755".into(),
        |size| format!("mode=0755,size={size}"),
    );
    mount(
        Some("tmpfs"),
        dir,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options.as_str()),
    )?;
    Ok(())
}

/// Unmounts everything below `root`, the innermost first.
pub(super) fn unmount_below(root: &Path) -> io::Result<()> {
    let mut points = mount_points_below(root)?;
    points.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for point in points {
        // Detached: a container that is still being torn down must not block the pod.
        umount2(&point, MntFlags::MNT_DETACH)?;
    }
    Ok(())
}

fn is_mount_point(dir: &Path) -> io::Result<bool> {
    Ok(mount_points()?.iter().any(|point| point == dir))
}

fn mount_points_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(mount_points()?
        .into_iter()
        .filter(|point| point.starts_with(root))
        .collect())
}

fn mount_points() -> io::Result<Vec<PathBuf>> {
    Ok(parse_mountinfo(&fs::read_to_string(
        "/proc/self/mountinfo",
    )?))
}

/// The mount points of `/proc/self/mountinfo` (proc(5)): field 5, with space,
/// tab, newline and backslash as three octal digits.
fn parse_mountinfo(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| {
            let plain = field
                .replace("\\040", " ")
                .replace("\\011", "\t")
                .replace("\\012", "\n")
                .replace("\\134", "\\");
            PathBuf::from(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let text = "36 35 98:0 / /a rw - ext4 /dev/x rw\n\
                    37 36 0:30 /x /a/with\\040space rw,nosuid shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(
            parse_mountinfo(text),
            [PathBuf::from("/a"), "/a/with space".into()]
        );
    }
}
