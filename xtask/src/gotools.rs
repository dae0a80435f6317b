//! The parts of a real Kubernetes, built once from Go modules into the cache.
//!
//! Each group is a small module under `xtask/go` whose `go.mod` and `go.sum`
//! pin everything; a group is built again only when these or its flags change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::cache;
use crate::command::{on_path, output, quiet};

struct Group {
    /// Folder under `xtask/go`
    name: &'static str,
    /// Package and the name of its program
    programs: &'static [(&'static str, &'static str)],
    /// The same for packages whose tests are the program
    suites: &'static [(&'static str, &'static str)],
    /// Folder below the cache's `bin`, for programs whose names another group has; empty: none
    into: &'static str,
    tags: &'static str,
    ldflags: &'static str,
}

const KUBERNETES_LDFLAGS: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.36.3 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=36";

const GROUPS: &[Group] = &[
    Group {
        name: "kubernetes",
        programs: &[
            ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
            ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
            (
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "kube-controller-manager",
            ),
            ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
            ("k8s.io/kubernetes/cmd/kube-proxy", "kube-proxy"),
            ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
            ("k8s.io/kubernetes/test/images/agnhost", "agnhost"),
        ],
        suites: &[],
        into: "",
        tags: "",
        ldflags: KUBERNETES_LDFLAGS,
    },
    Group {
        name: "containerd",
        programs: &[
            (
                "github.com/containerd/containerd/v2/cmd/containerd",
                "containerd",
            ),
            (
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "containerd-shim-runc-v2",
            ),
            ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
        ],
        suites: &[],
        into: "",
        tags: "no_btrfs no_zfs no_devmapper",
        ldflags: "-s -w",
    },
    Group {
        name: "containerd17",
        programs: &[
            (
                "github.com/containerd/containerd/cmd/containerd",
                "containerd",
            ),
            (
                "github.com/containerd/containerd/cmd/containerd-shim-runc-v2",
                "containerd-shim-runc-v2",
            ),
            ("github.com/containerd/containerd/cmd/ctr", "ctr"),
        ],
        suites: &[],
        into: "containerd-1.7",
        tags: "no_btrfs no_zfs no_devmapper no_aufs",
        ldflags: "-s -w",
    },
    Group {
        name: "etcd",
        programs: &[("go.etcd.io/etcd/server/v3", "etcd")],
        suites: &[],
        into: "",
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "cri-tools",
        programs: &[("sigs.k8s.io/cri-tools/cmd/crictl", "crictl")],
        suites: &[],
        into: "",
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "cni",
        programs: &[
            ("github.com/containernetworking/cni/cnitool", "cnitool"),
            (
                "github.com/containernetworking/plugins/plugins/ipam/dhcp",
                "dhcp",
            ),
            (
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
                "host-local",
            ),
            (
                "github.com/containernetworking/plugins/plugins/ipam/static",
                "static",
            ),
            (
                "github.com/containernetworking/plugins/plugins/main/bridge",
                "bridge",
            ),
            (
                "github.com/containernetworking/plugins/plugins/main/loopback",
                "loopback",
            ),
            (
                "github.com/containernetworking/plugins/plugins/main/ptp",
                "ptp",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/bandwidth",
                "bandwidth",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/firewall",
                "firewall",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/portmap",
                "portmap",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/sbr",
                "sbr",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/tuning",
                "tuning",
            ),
        ],
        suites: &[],
        into: "",
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "coredns",
        programs: &[("github.com/coredns/coredns", "coredns")],
        suites: &[],
        into: "",
        tags: "",
        ldflags: "-s -w",
    },
];

/// Upstream's end-to-end tests, what runs them, and what is in their images. Not a part of
/// [`GROUPS`]: they take as long as all of those, and the tests of this tree need none of it.
const E2E: Group = Group {
    name: "e2e",
    programs: &[
        ("github.com/onsi/ginkgo/v2/ginkgo", "ginkgo"),
        ("k8s.io/kubernetes/test/images/nonewprivs", "nonewprivs"),
        (
            "k8s.io/kubernetes/test/images/regression-issue-74839",
            "regression-issue-74839",
        ),
        ("k8s.io/sample-apiserver", "sample-apiserver"),
    ],
    suites: &[("k8s.io/kubernetes/test/e2e", "e2e.test")],
    into: "",
    tags: "",
    ldflags: KUBERNETES_LDFLAGS,
};

/// Builds what is missing or out of date.
///
/// # Errors
/// When Go is not there or a build fails.
pub(crate) fn ensure() -> Result<()> {
    ensure_some(GROUPS)
}

/// The same for the reference plugins of CNI alone.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_cni() -> Result<()> {
    let cni = GROUPS.iter().position(|group| group.name == "cni");
    ensure_some(cni.map_or(&[], |place| &GROUPS[place..=place]))
}

/// The same for upstream's end-to-end tests.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_e2e() -> Result<()> {
    ensure_some(&[E2E])
}

/// The folder of the module `k8s.io/kubernetes`, of the version that the tests are of.
///
/// # Errors
/// When Go does not know it, which it does after [`ensure_e2e`].
pub(crate) fn kubernetes() -> Result<PathBuf> {
    let listed = output(
        Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
            .env("GOFLAGS", "-mod=readonly")
            .current_dir(cache::tree().join("xtask/go").join(E2E.name)),
    );
    let dir = listed.unwrap_or_default();
    // It is empty for a module that is not in Go's cache.
    match dir.trim() {
        "" => {
            bail!("go list knows no folder of k8s.io/kubernetes: go mod download in xtask/go/e2e")
        }
        dir => Ok(PathBuf::from(dir)),
    }
}

fn ensure_some(groups: &[Group]) -> Result<()> {
    let cache = cache::dir()?;
    for group in groups {
        let folder = cache::tree().join("xtask/go").join(group.name);
        let stamp = group.stamp(&folder)?;
        let stamp_file = cache.join("stamps").join(format!("go-{}", group.name));
        let built = fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp);
        let bin = cache.join("bin").join(group.into);
        let present = |(_, program): &(&str, &str)| bin.join(program).is_file();
        if built && group.all().all(present) {
            continue;
        }
        if !on_path("go") {
            bail!("the cluster's parts are built with Go 1.26 or newer: put `go` on the PATH");
        }
        fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
        group.build(&folder, &bin)?;
        fs::write(&stamp_file, stamp).with_context(|| format!("write {}", stamp_file.display()))?;
    }
    Ok(())
}

impl Group {
    fn all(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        self.programs.iter().chain(self.suites)
    }

    fn stamp(&self, folder: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        for name in ["go.mod", "go.sum"] {
            let path = folder.join(name);
            hash.update(fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
        hash.update(self.tags);
        hash.update(self.ldflags);
        for (package, _) in self.all() {
            hash.update(package);
        }
        Ok(format!("{:x}", hash.finalize()))
    }

    fn build(&self, folder: &Path, bin: &Path) -> Result<()> {
        let count = self.all().count();
        for (index, (package, program)) in self.all().enumerate() {
            let what = format!("go build {program} ({} {}/{count})", self.name, index + 1);
            let verb: &[&str] = if index < self.programs.len() {
                &["build"]
            } else {
                // What upstream has vetted need not be vetted here, with all that it uses.
                &["test", "-c", "-vet=off"]
            };
            // Go writes the program to its final name in place; a running one
            // of the same name must not be written to.
            let fresh = bin.join(format!(".{program}.new"));
            quiet(
                &what,
                Command::new("go")
                    .args(verb)
                    .args(["-trimpath", "-tags", self.tags])
                    .args(["-ldflags", self.ldflags, "-o"])
                    .arg(&fresh)
                    .arg(package)
                    .env("CGO_ENABLED", "0")
                    .env("GOFLAGS", "-mod=readonly")
                    .current_dir(folder),
            )?;
            fs::rename(&fresh, bin.join(program))
                .with_context(|| format!("put {program} into {}", bin.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_tests_are_of_the_version_that_they_test() {
        let line = |module: &str| {
            let path = cache::tree().join("xtask/go").join(module).join("go.mod");
            let text = fs::read_to_string(path).unwrap();
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix("require k8s.io/kubernetes "));
            found.map(str::to_owned)
        };
        assert!(line("kubernetes").is_some());
        assert_eq!(line("kubernetes"), line(E2E.name));
    }
}
