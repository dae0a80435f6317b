//! The control plane: in a namespace of its own, without a default route.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::pki::Pki;
use super::place::{Daemon, Place};
use super::{Families, Images, START_LIMIT, dns, registry, tool, until};
use crate::{Cgroup2, Netns};

#[derive(Debug)]
pub(super) struct ControlPlane {
    // Dropped in this order.
    daemons: Vec<Daemon>,
    place: Place,
    guards: Option<(Cgroup2, Netns)>,
    families: Families,
}

impl ControlPlane {
    /// Makes the namespace; starts the registry and etcd.
    pub(super) fn start(dir: &Path, families: Families, images: &Images) -> Result<Self> {
        let netns = Netns::new("control");
        // Everybody is known here; nobody has to wait a second for an address.
        netns.sysctl("ipv6/conf/default/accept_dad", "0");
        netns.ip("link add br0 type bridge");
        for plan in families.plans() {
            let (ip, length) = (plan.control, plan.link_length);
            netns.ip(&format!("addr add {ip}{length} dev br0"));
        }
        netns.ip("link set br0 up");
        let cgroup = Cgroup2::new("control");
        let place = Place::new(vec![netns.fd()], cgroup.path().to_owned());
        let registry = registry::start(dir, &place, families, images)?;
        let mut control = Self {
            daemons: vec![registry],
            place,
            guards: Some((cgroup, netns)),
            families,
        };
        control.daemons.push(etcd(dir).spawn(&control.place)?);
        Ok(control)
    }

    /// Starts the API server.
    pub(super) fn start_api(&mut self, dir: &Path, pki: &Pki) -> Result<()> {
        let api = api_server(dir, pki, self.families);
        self.daemons.push(api.spawn(&self.place)?);
        Ok(())
    }

    /// Waits for the API, then starts what cannot start without it.
    pub(super) fn complete(&mut self, dir: &Path, pki: &Pki) -> Result<()> {
        let mut kubectl = self.place.command(tool("kubectl"));
        kubectl
            .args(["get", "--raw", "/readyz"])
            .env("KUBECONFIG", pki.kubeconfig("admin"));
        kubectl.env("HOME", dir);
        until("the API server is ready", START_LIMIT, || {
            for daemon in &self.daemons {
                daemon.check_alive()?;
            }
            let asked = kubectl.output().context("start kubectl")?;
            Ok(asked.status.success().then_some(()))
        })?;
        for daemon in [
            controller_manager(dir, pki, self.families),
            scheduler(dir, pki),
            dns::server(dir, pki, self.families)?,
        ] {
            self.daemons.push(daemon.spawn(&self.place)?);
        }
        Ok(())
    }

    /// Makes an image one that nodes can pull; gives its name for them.
    pub(super) fn publish(&mut self, dir: &Path, archive: &Path, name: &str) -> Result<String> {
        let (registry, name) = registry::publish(dir, &self.place, self.families, archive, name)?;
        self.daemons.push(registry);
        Ok(name)
    }

    pub(super) fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.daemons.iter()
    }

    pub(super) fn families(&self) -> Families {
        self.families
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn netns(&self) -> &Netns {
        let (_, netns) = self
            .guards
            .as_ref()
            .expect("only a cluster that is dropped is kept");
        netns
    }

    /// Leaves everything running when the guard goes.
    pub(super) fn keep(&mut self) {
        self.daemons.drain(..).for_each(std::mem::forget);
        std::mem::forget(self.guards.take());
    }
}

fn etcd(dir: &Path) -> Daemon {
    Daemon::new(dir, "etcd", tool("etcd")).args([
        format!("--data-dir={}", dir.join("etcd").display()),
        "--listen-client-urls=http://127.0.0.1:2379".into(),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=http://127.0.0.1:2380".into(),
        // Nothing of this outlives the cluster.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ])
}

fn api_server(dir: &Path, pki: &Pki, families: Families) -> Daemon {
    let file = |name: &str| pki.text(name);
    Daemon::new(dir, "kube-apiserver", tool("kube-apiserver")).args([
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--advertise-address={}", families.control_ip()),
        "--secure-port=6443".into(),
        format!("--service-cluster-ip-range={}", families.service_cidrs()),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged=true".into(),
        "--enable-aggregator-routing=true".into(),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        // Node names are in no DNS here.
        "--kubelet-preferred-address-types=InternalIP".into(),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            file("apiserver-kubelet.crt")
        ),
        format!("--kubelet-client-key={}", file("apiserver-kubelet.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        // Without these no aggregated API becomes available.
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
    ])
}

fn controller_manager(dir: &Path, pki: &Pki, families: Families) -> Daemon {
    component(dir, pki, "kube-controller-manager", "controller-manager").args([
        "--allocate-node-cidrs=true".to_owned(),
        format!("--cluster-cidr={}", families.cluster_cidrs()),
        format!("--service-cluster-ip-range={}", families.service_cidrs()),
        "--use-service-account-credentials=true".into(),
        format!("--root-ca-file={}", pki.text("ca.crt")),
        format!("--service-account-private-key-file={}", pki.text("sa.key")),
        format!("--cluster-signing-cert-file={}", pki.text("ca.crt")),
        format!("--cluster-signing-key-file={}", pki.text("ca.key")),
    ])
}

fn scheduler(dir: &Path, pki: &Pki) -> Daemon {
    component(dir, pki, "kube-scheduler", "scheduler")
}

/// What the controller manager and the scheduler have in common.
fn component(dir: &Path, pki: &Pki, program: &str, user: &str) -> Daemon {
    let kubeconfig: PathBuf = pki.kubeconfig(user);
    let kubeconfig = kubeconfig.display();
    Daemon::new(dir, program, tool(program)).args([
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=false".into(),
    ])
}
