//! The overlays that a site has: where the image is, and its addresses.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::Cluster;
use seaway_testbed::{bin, images};

/// Folders for `kubectl … -k`.
pub(crate) struct Site {
    pub(crate) deploy: String,
    pub(crate) uninstall: String,
}

impl Site {
    /// Builds the image, publishes it, and writes overlays over a copy of `deploy/`.
    pub(crate) fn new(cluster: &mut Cluster) -> Result<Self> {
        let archive = cluster.dir().join("seaway.tar");
        let programs = bin("seaway-proxy");
        let programs = programs.parent().context("a program is in a folder")?;
        images::product(programs, &[images::SEAWAY], &archive)?;
        let image = cluster.publish_image(&archive, images::SEAWAY)?;
        let (name, tag) = image.rsplit_once(':').context("an image has a tag")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let mut copy = Command::new("cp");
        let done = copy.arg("-r").arg(source).arg(cluster.dir()).status();
        ensure!(done.context("start cp")?.success(), "copy deploy/");
        let images =
            format!("images: [{{name: localhost/seaway, newName: {name}, newTag: {tag}}}]\n");
        let settings = format!(
            "configMapGenerator:\n\
             - name: seaway\n\
             \x20 namespace: kube-system\n\
             \x20 behavior: merge\n\
             \x20 literals:\n\
             \x20 - SEAWAY_API_SERVER=https://{}:6443\n\
             \x20 - SEAWAY_CLUSTER_CIDR={}\n",
            cluster.families().control_ip(),
            cluster.families().cluster_cidrs(),
        );
        let write = |folder: &str, base: &str, rest: &str| -> Result<String> {
            let dir = cluster.dir().join(folder);
            fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
            let text = format!("resources: [{base}]\n{rest}");
            fs::write(dir.join("kustomization.yaml"), text).context("write an overlay")?;
            Ok(dir.display().to_string())
        };
        Ok(Self {
            deploy: write("site", "../deploy", &format!("{images}{settings}"))?,
            uninstall: write("site-uninstall", "../deploy/uninstall", &images)?,
        })
    }
}
