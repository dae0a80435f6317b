//! The image that is delivered: `seaway-proxy`, `seaway-cni`, and what they execute.
//!
//! Programs and libraries are this machine's own, with their packages' licences: the daemon is
//! linked with this machine's C library anyway, iptables is the one that its tests have run
//! with, and no network is needed. There is no shell and no package manager in it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{ImageSpec, open_folder};

/// The name that `deploy/` has: of no registry, and one that container runtimes leave as it is.
pub const SEAWAY: &str = "localhost/seaway:dev";

/// What the iptables backend and the CNI plugin execute, in this machine's folder for it.
const PROGRAMS: &[&str] = &["ipset", "xtables-legacy-multi", "xtables-nft-multi"];
const SBIN: &str = "/usr/sbin";
/// What a pod does that has done its work: `deploy/uninstall`.
const SLEEP: &str = "/usr/bin/sleep";
/// Matches and targets of iptables, loaded when a rule names them.
const EXTENSIONS: &str = "xtables";
/// In the image, on everybody's `PATH`, beside each other: that is where each looks for the other.
const OURS: &str = "usr/local/bin";

/// Writes the delivered image as an OCI archive, its programs taken from the folder `bin`.
///
/// # Errors
/// When a program is not there, ours or the base system's, or `path` cannot be written.
pub fn product(bin: &Path, names: &[&str], path: &Path) -> Result<()> {
    let rootfs = crate::temporary("image").context("make a folder for the image")?;
    fill(bin, rootfs.path()).context("collect what is in the image")?;
    let mut spec = ImageSpec::new(names, rootfs.path());
    spec.entrypoint = vec!["seaway-proxy".to_owned()];
    spec.cmd = vec!["run".to_owned()];
    spec.write_oci_archive(path)
}

fn fill(bin: &Path, root: &Path) -> Result<()> {
    open_folder(root)?;
    folders(root)?;
    let mut files = BTreeSet::new();
    for name in ["seaway-proxy", "seaway-cni"] {
        let program = bin.join(name);
        without_debug_info(&program, &root.join(OURS).join(name))?;
        files.extend(libraries(&program)?);
    }
    for program in PROGRAMS.iter().map(|name| Path::new(SBIN).join(name)) {
        files.extend(libraries(&program)?);
        files.insert(program);
    }
    let sleep = PathBuf::from(SLEEP);
    files.extend(libraries(&sleep)?);
    files.insert(sleep);
    files.extend(extensions(&files)?);
    files.insert(PathBuf::from("/etc/os-release"));
    for file in &files {
        copy(file, root)?;
    }
    licences(&files, root)?;
    names_of_iptables(root)
}

/// As in Debian: one tree below `/usr`, and names of old for it.
fn folders(root: &Path) -> Result<()> {
    for dir in [
        OURS,
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "etc",
        "run",
        "var",
        "tmp",
    ] {
        fs::create_dir_all(root.join(dir)).with_context(|| format!("make /{dir}"))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
        // Records name a pod's network namespace as the runtime did, which is below this.
        ("var/run", "/run"),
    ] {
        symlink(target, root.join(link)).with_context(|| format!("link /{link}"))?;
    }
    Ok(())
}

/// A development build is a hundred megabytes of names otherwise.
fn without_debug_info(program: &Path, to: &Path) -> Result<()> {
    let shown = program.display();
    if !program.is_file() {
        bail!("there is no {shown}: `cargo xtask build` makes it");
    }
    output(
        Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .args([to, program]),
    )?;
    fs::set_permissions(to, PermissionsExt::from_mode(0o755)).context("set a mode")
}

/// The libraries that the loader finds for a program; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = Command::new("ldd");
    let listed = ldd.arg(program).output().context("start ldd")?;
    let text = String::from_utf8_lossy(&listed.stdout);
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}: {}", program.display(), missing.trim());
    }
    Ok(parse_ldd(&text))
}

/// `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader itself.
fn parse_ldd(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(PathBuf::from)
    };
    text.lines().filter_map(path).collect()
}

/// In the folder beside `libxtables`.
fn extensions(files: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
    let is_libxtables = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("libxtables.so")
    };
    let library = files.iter().find(is_libxtables);
    let library = library.context("iptables is linked without libxtables")?;
    let folder = library.parent().unwrap_or(Path::new("/")).join(EXTENSIONS);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        found.push(entry.context("list iptables' extensions")?.path());
    }
    Ok(found)
}

/// To the same path, through the links in `/` that both have; a link becomes what it leads to.
fn copy(file: &Path, root: &Path) -> Result<()> {
    let to = root.join(file.strip_prefix("/").unwrap_or(file));
    let dir = to.parent().unwrap_or(root);
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    fs::copy(file, &to).with_context(|| format!("copy {} (cargo xtask setup)", file.display()))?;
    Ok(())
}

/// What the packages of these files want to be passed on with them.
fn licences(files: &BTreeSet<PathBuf>, root: &Path) -> Result<()> {
    let mut query = Command::new("dpkg-query");
    query.arg("--search");
    for file in files {
        // A package may know its file by the name of old, or by that below /usr.
        query.arg(file);
        match file.strip_prefix("/usr") {
            Ok(rest) => query.arg(Path::new("/").join(rest)),
            Err(_) => query.arg(Path::new("/usr").join(file.strip_prefix("/").unwrap_or(file))),
        };
    }
    // It fails for the names that no package knows, and tells about the others.
    let answer = query.output().context("start dpkg-query")?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let packages: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split([':', ',']).next())
        .collect();
    for package in packages {
        let file = Path::new("/usr/share/doc").join(package).join("copyright");
        if file.is_file() {
            copy(&file, root)?;
        }
    }
    Ok(())
}

/// The names of one program that does by its name what it is to do.
fn names_of_iptables(root: &Path) -> Result<()> {
    for flavour in ["nft", "legacy"] {
        for family in ["iptables", "ip6tables"] {
            for verb in ["", "-save", "-restore"] {
                let link = root
                    .join("usr/sbin")
                    .join(format!("{family}-{flavour}{verb}"));
                let program = format!("xtables-{flavour}-multi");
                symlink(program, &link).with_context(|| format!("link {}", link.display()))?;
            }
        }
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().with_context(|| format!("start {name}"))?;
    if !done.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007f9)\n\
                    \tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x0)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x0)\n";
        let want = [
            "/lib/x86_64-linux-gnu/libmnl.so.0",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse_ldd(text), want.map(PathBuf::from));
        assert_eq!(parse_ldd("\tstatically linked\n"), Vec::<PathBuf>::new());
    }
}
