//! The OCI image layout, version 1.0.0, in one tar file.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{ImageSpec, hex};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub(super) fn write(spec: &ImageSpec, path: &Path) -> Result<()> {
    let layout = crate::temporary("layout")?;
    let blobs = layout.path().join("blobs/sha256");
    std::fs::create_dir_all(&blobs)?;
    let layer = layer_blob(&spec.rootfs, &blobs)?;
    let digest = layer["digest"].as_str().expect("it was just set");
    let config = json_blob(CONFIG, &spec.config(digest), &blobs)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    });
    let manifest = json_blob(MANIFEST, &manifest, &blobs)?;
    let index = index(&manifest, &spec.names);
    std::fs::write(layout.path().join("index.json"), index.to_string())?;
    std::fs::write(
        layout.path().join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let partial = path.with_extension("partial");
    tar(layout.path(), &partial)?;
    std::fs::rename(&partial, path).with_context(|| format!("write {}", path.display()))
}

/// One entry per name, all for the same manifest. containerd takes the full name from its own
/// annotation, other programs take the tag from the standard one.
fn index(manifest: &Value, names: &[String]) -> Value {
    let entries: Vec<Value> = names
        .iter()
        .map(|name| {
            let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
            let mut entry = manifest.clone();
            entry["annotations"] = json!({
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": tag,
            });
            entry
        })
        .collect();
    json!({"schemaVersion": 2, "manifests": entries})
}

fn json_blob(media_type: &str, content: &Value, blobs: &Path) -> Result<Value> {
    let content = content.to_string();
    let hash = hex(&Sha256::digest(&content));
    std::fs::write(blobs.join(&hash), &content)?;
    Ok(descriptor(media_type, &hash, content.len() as u64))
}

fn layer_blob(rootfs: &Path, blobs: &Path) -> Result<Value> {
    let partial = blobs.join("layer");
    tar(rootfs, &partial)?;
    let mut hasher = Sha256::new();
    let size = std::io::copy(&mut std::fs::File::open(&partial)?, &mut hasher)?;
    let hash = hex(&hasher.finalize());
    std::fs::rename(&partial, blobs.join(&hash))?;
    Ok(descriptor(LAYER, &hash, size))
}

fn descriptor(media_type: &str, hash: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{hash}"), "size": size})
}

/// A tar file of a folder's content that depends on nothing but that content.
fn tar(folder: &Path, file: &Path) -> Result<()> {
    let done = Command::new("tar")
        .args([
            "--create",
            "--format=posix",
            "--sort=name",
            "--mtime=@0",
            "--numeric-owner",
        ])
        .arg("--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime")
        .args(["--xattrs", "--file"])
        .arg(file)
        .arg("--directory")
        .args([folder, Path::new(".")])
        .output()
        .context("start tar")?;
    if !done.status.success() {
        bail!(
            "tar of {}: {}",
            folder.display(),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}
