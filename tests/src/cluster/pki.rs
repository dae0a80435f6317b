//! Certificates and kubeconfigs of a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::{Families, host_port};

/// The files of one folder: `NAME.crt`, `NAME.key`, `NAME.kubeconfig`.
#[derive(Debug)]
pub(super) struct Pki {
    dir: PathBuf,
    families: Families,
    ca: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes the authority, and what the control plane needs.
    pub(super) fn create(dir: &Path, families: Families) -> Result<Self> {
        let dir = dir.join("pki");
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let (ca, pem, key) = authority("seaway-test-ca")?;
        let pki = Self { dir, families, ca };
        pki.write("ca.crt", &pem)?;
        pki.write("ca.key", &key)?;
        let names = [
            "127.0.0.1",
            "::1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        pki.serving(
            "apiserver",
            names.into_iter().chain(families.api_addresses()),
        )?;
        pki.client(
            "apiserver-kubelet",
            "kube-apiserver-kubelet-client",
            "system:masters",
        )?;
        pki.client("front-proxy", "front-proxy-client", "")?;
        pki.client("admin", "kubernetes-admin", "system:masters")?;
        pki.client("controller-manager", "system:kube-controller-manager", "")?;
        pki.client("scheduler", "system:kube-scheduler", "")?;
        pki.client("proxy", "system:kube-proxy", "")?;
        let tokens = KeyPair::generate().context("make the key of service-account tokens")?;
        pki.write("sa.key", &tokens.serialize_pem())?;
        pki.write("sa.pub", &tokens.public_key_pem())?;
        Ok(pki)
    }

    /// What a node's agent needs: a client as `system:node:NAME`, and a serving certificate.
    pub(super) fn node(&self, name: &str, index: usize) -> Result<()> {
        self.client(name, &format!("system:node:{name}"), "system:nodes")?;
        // It may be asked by either, so that its address can change.
        let families = self.families;
        let ips = [families.node_ips(index), families.spare_ips(index)].concat();
        let subjects = [name, "127.0.0.1"].into_iter();
        self.serving(
            &format!("{name}-serving"),
            subjects.chain(ips.iter().map(String::as_str)),
        )
    }

    /// The path of a file, such as `ca.crt`.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// The same as text, for command lines.
    pub(super) fn text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    pub(super) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.kubeconfig"))
    }

    fn serving<'a>(&self, name: &str, subjects: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let subjects: Vec<String> = subjects.into_iter().map(str::to_owned).collect();
        let params = CertificateParams::new(subjects).context("subject names")?;
        self.issue(name, name, "", params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self, name: &str, user: &str, group: &str) -> Result<()> {
        let params = CertificateParams::default();
        self.issue(
            name,
            user,
            group,
            params,
            ExtendedKeyUsagePurpose::ClientAuth,
        )?;
        let api = host_port(self.families.control_ip(), 6443);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "cluster",
            "clusters": [{"name": "cluster", "cluster": {
                "server": format!("https://{api}"),
                "certificate-authority": self.path("ca.crt"),
            }}],
            "users": [{"name": "user", "user": {
                "client-certificate": self.path(&format!("{name}.crt")),
                "client-key": self.path(&format!("{name}.key")),
            }}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
        });
        self.write(&format!("{name}.kubeconfig"), &config.to_string())
    }

    fn issue(
        &self,
        name: &str,
        common_name: &str,
        organization: &str,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<()> {
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        if !organization.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, organization);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().with_context(|| format!("make the key of {name}"))?;
        let certificate = params
            .signed_by(&key, &self.ca)
            .with_context(|| format!("sign {name}"))?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    fn write(&self, file: &str, content: &str) -> Result<()> {
        let path = self.path(file);
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))
    }
}

/// An authority, its certificate and its key, both as PEM.
fn authority(name: &str) -> Result<(Issuer<'static, KeyPair>, String, String)> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate().context("make the authority's key")?;
    let certificate = params.self_signed(&key).context("sign the authority")?;
    let (pem, key_pem) = (certificate.pem(), key.serialize_pem());
    Ok((Issuer::new(params, key), pem, key_pem))
}
