//! The parts of a real Kubernetes, built once from Go modules into the cache.
//!
//! Each group is a small module under `xtask/go` whose `go.mod` and `go.sum`
//! pin everything; a group is built again only when these or its flags change.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::cache;
use crate::command::{on_path, quiet};

struct Group {
    /// Folder under `xtask/go`
    name: &'static str,
    /// Package and the name of its program
    programs: &'static [(&'static str, &'static str)],
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
        tags: "no_btrfs no_zfs no_devmapper",
        ldflags: "-s -w",
    },
    Group {
        name: "etcd",
        programs: &[("go.etcd.io/etcd/server/v3", "etcd")],
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "cri-tools",
        programs: &[("sigs.k8s.io/cri-tools/cmd/crictl", "crictl")],
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "cni",
        programs: &[
            ("github.com/containernetworking/cni/cnitool", "cnitool"),
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
                "github.com/containernetworking/plugins/plugins/meta/portmap",
                "portmap",
            ),
        ],
        tags: "",
        ldflags: "-s -w",
    },
    Group {
        name: "coredns",
        programs: &[("github.com/coredns/coredns", "coredns")],
        tags: "",
        ldflags: "-s -w",
    },
];

/// Builds what is missing or out of date.
///
/// # Errors
/// When Go is not there or a build fails.
pub(crate) fn ensure() -> Result<()> {
    let cache = cache::dir()?;
    for group in GROUPS {
        let folder = cache::tree().join("xtask/go").join(group.name);
        let stamp = group.stamp(&folder)?;
        let stamp_file = cache.join("stamps").join(format!("go-{}", group.name));
        let built = fs::read_to_string(&stamp_file).is_ok_and(|old| old == stamp);
        let present = |(_, program): &(&str, &str)| cache.join("bin").join(program).is_file();
        if built && group.programs.iter().all(present) {
            continue;
        }
        if !on_path("go") {
            bail!("the cluster's parts are built with Go 1.26 or newer: put `go` on the PATH");
        }
        group.build(&folder, &cache.join("bin"))?;
        fs::write(&stamp_file, stamp).with_context(|| format!("write {}", stamp_file.display()))?;
    }
    Ok(())
}

impl Group {
    fn stamp(&self, folder: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        for name in ["go.mod", "go.sum"] {
            let path = folder.join(name);
            hash.update(fs::read(&path).with_context(|| format!("read {}", path.display()))?);
        }
        hash.update(self.tags);
        hash.update(self.ldflags);
        for (package, _) in self.programs {
            hash.update(package);
        }
        Ok(format!("{:x}", hash.finalize()))
    }

    fn build(&self, folder: &Path, bin: &Path) -> Result<()> {
        for (index, (package, program)) in self.programs.iter().enumerate() {
            let what = format!(
                "go build {program} ({} {}/{})",
                self.name,
                index + 1,
                self.programs.len()
            );
            // Go writes the program to its final name in place; a running one
            // of the same name must not be written to.
            let fresh = bin.join(format!(".{program}.new"));
            quiet(
                &what,
                Command::new("go")
                    .args(["build", "-trimpath", "-tags", self.tags])
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
