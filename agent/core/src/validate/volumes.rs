//! Volumes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{KeyToPath, PodSpec, Volume};

use super::Found;
use crate::payload::is_inside;
use crate::quantity;

/// Permission bits.
const MODE_MAX: i32 = 0o777;

pub(super) fn volumes(spec: &PodSpec, found: &mut Found) {
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        found.dns_label(format!("{path}.name"), &volume.name);
        if !names.insert(&volume.name) {
            let message = format!("{:?} is there twice", volume.name);
            found.add(format!("{path}.name"), message);
        }
        files(&path, volume, found);
        directories(&path, volume, found);
    }
}

fn directories(path: &str, volume: &Volume, found: &mut Found) {
    if let Some(source) = &volume.empty_dir {
        let media = ["Memory", "HugePages"];
        let medium = source.medium.as_ref();
        let medium = medium.filter(|medium| !medium.starts_with("HugePages-"));
        found.one_of(format!("{path}.emptyDir.medium"), medium, &media);
        if let Some(Err(error)) = source.size_limit.as_ref().map(quantity::bytes) {
            found.add(format!("{path}.emptyDir.sizeLimit"), error.to_string());
        }
    }
    if let Some(source) = &volume.host_path {
        let types = [
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ];
        found.one_of(
            format!("{path}.hostPath.type"),
            source.type_.as_ref(),
            &types,
        );
        if source.path.is_empty() {
            found.add(format!("{path}.hostPath.path"), "required");
        } else if source.path.split('/').any(|part| part == "..") {
            found.add(format!("{path}.hostPath.path"), "must not have \"..\"");
        }
    }
}

fn files(path: &str, volume: &Volume, found: &mut Found) {
    if let Some(source) = &volume.config_map {
        let path = format!("{path}.configMap");
        items(&path, source.default_mode, source.items.as_deref(), found);
    }
    if let Some(source) = &volume.secret {
        let path = format!("{path}.secret");
        items(&path, source.default_mode, source.items.as_deref(), found);
    }
    if let Some(source) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        mode(&path, "defaultMode", source.default_mode, found);
        for (index, item) in source.items.iter().flatten().enumerate() {
            file(
                &format!("{path}.items[{index}]"),
                &item.path,
                item.mode,
                found,
            );
        }
    }
    let Some(projected) = &volume.projected else {
        return;
    };
    let path = format!("{path}.projected");
    mode(&path, "defaultMode", projected.default_mode, found);
    for (index, source) in projected.sources.iter().flatten().enumerate() {
        let path = format!("{path}.sources[{index}]");
        if let Some(source) = &source.config_map {
            items(
                &format!("{path}.configMap"),
                None,
                source.items.as_deref(),
                found,
            );
        }
        if let Some(source) = &source.secret {
            items(
                &format!("{path}.secret"),
                None,
                source.items.as_deref(),
                found,
            );
        }
        for (index, item) in source
            .downward_api
            .iter()
            .flat_map(|d| &d.items)
            .flatten()
            .enumerate()
        {
            let path = format!("{path}.downwardAPI.items[{index}]");
            file(&path, &item.path, item.mode, found);
        }
    }
}

fn items(path: &str, default: Option<i32>, items: Option<&[KeyToPath]>, found: &mut Found) {
    mode(path, "defaultMode", default, found);
    for (index, item) in items.into_iter().flatten().enumerate() {
        file(
            &format!("{path}.items[{index}]"),
            &item.path,
            item.mode,
            found,
        );
    }
}

fn file(path: &str, name: &str, bits: Option<i32>, found: &mut Found) {
    if !is_inside(name) {
        let message = format!("{name:?} must be relative, without \"..\"");
        found.add(format!("{path}.path"), message);
    }
    mode(path, "mode", bits, found);
}

fn mode(path: &str, field: &str, bits: Option<i32>, found: &mut Found) {
    if let Some(bits) = bits.filter(|bits| !(0..=MODE_MAX).contains(bits)) {
        let message = format!("{bits:#o} is not between 0 and {MODE_MAX:#o}");
        found.add(format!("{path}.{field}"), message);
    }
}
