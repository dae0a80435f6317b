//! Which version of each file is in force: the latest that agrees with itself and with
//! the others, taken whole or not at all. What is in force stays until the file goes, or
//! has a version that can be taken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use serde::{Deserialize, Serialize};

use super::cluster_ip::Allocator;
use super::manifest::{Object, ObjectId};
use crate::local::Refusal;

/// A file whose content is valid by itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct File {
    pub(super) objects: Vec<Object>,
    /// When it was last written: objects are as old as their file.
    pub(super) modified: Timestamp,
}

type ByName = BTreeMap<String, Arc<File>>;

/// All files.
#[derive(Debug)]
pub(super) struct Files {
    in_force: ByName,
    /// Newer versions that have not been taken, since others speak against them.
    offered: ByName,
    /// What is wrong with files that cannot even be offered.
    invalid: BTreeMap<String, String>,
    /// What speaks against those that are offered.
    refused: BTreeMap<String, String>,
    allocator: Allocator,
    is_settled: bool,
}

impl Files {
    /// With what was in force before; what no longer can be is forgotten.
    pub(super) fn new(allocator: Allocator, in_force: BTreeMap<String, File>) -> Self {
        let offered = in_force
            .into_iter()
            .map(|(name, file)| (name, Arc::new(file)));
        let mut files = Self {
            in_force: ByName::new(),
            offered: offered.collect(),
            invalid: BTreeMap::new(),
            refused: BTreeMap::new(),
            allocator,
            is_settled: false,
        };
        files.settle();
        files.offered.clear();
        files.refused.clear();
        files
    }

    /// There is a new version.
    pub(super) fn offer(&mut self, name: &str, file: File) {
        self.invalid.remove(name);
        self.refused.remove(name);
        self.is_settled = false;
        let in_force = self.in_force.get(name);
        if in_force.is_some_and(|in_force| in_force.objects == file.objects) {
            self.offered.remove(name);
        } else {
            self.offered.insert(name.to_owned(), Arc::new(file));
        }
    }

    /// The newest version cannot be used.
    pub(super) fn refuse(&mut self, name: &str, problem: String) {
        // The version before it is no longer what anybody wants.
        self.offered.remove(name);
        self.refused.remove(name);
        self.invalid.insert(name.to_owned(), problem);
    }

    /// Forgets the files that are not there any more; their names.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let gone = self.in_force.keys().filter(|name| !is_there(name));
        let gone: Vec<String> = gone.cloned().collect();
        self.in_force.retain(|name, _file| is_there(name));
        self.offered.retain(|name, _file| is_there(name));
        self.invalid.retain(|name, _problem| is_there(name));
        self.refused.retain(|name, _problem| is_there(name));
        self.is_settled &= gone.is_empty();
        gone
    }

    /// Takes what can be taken of what is offered; whether anything has changed.
    pub(super) fn settle(&mut self) -> bool {
        if std::mem::replace(&mut self.is_settled, true) {
            return false;
        }
        if let Ok(allocator) = self.check(&self.in_force) {
            self.allocator = allocator;
        }
        // Together they may agree where one by one they do not: two that swap a name.
        let mut all = self.in_force.clone();
        all.extend(self.offered.clone());
        if let Ok(allocator) = self.check(&all) {
            (self.in_force, self.allocator) = (all, allocator);
            self.offered.clear();
            self.refused.clear();
            return true;
        }
        while self.take_one() {}
        true
    }

    fn take_one(&mut self) -> bool {
        self.refused.clear();
        for (name, file) in &self.offered {
            let mut with = self.in_force.clone();
            with.insert(name.clone(), Arc::clone(file));
            match self.check(&with) {
                Ok(allocator) => {
                    let name = name.clone();
                    (self.in_force, self.allocator) = (with, allocator);
                    self.offered.remove(&name);
                    return true;
                }
                Err(problem) => {
                    self.refused.insert(name.clone(), problem);
                }
            }
        }
        false
    }

    /// Whether these files agree with each other, and then who has which address.
    fn check(&self, files: &ByName) -> Result<Allocator, String> {
        let mut holders = BTreeMap::new();
        for (name, file) in files {
            for object in &file.objects {
                if let Some(other) = holders.insert(object.id(), name) {
                    // Whose version is not in force is the newcomer, and is blamed.
                    let is_new = |name: &String| {
                        let before = self.in_force.get(name);
                        before.is_none_or(|before| !Arc::ptr_eq(before, file))
                    };
                    let holder = if is_new(name) { other } else { name };
                    return Err(format!("{}: is already in {holder}", object.id()));
                }
            }
        }
        assign(&self.allocator, files)
    }

    /// Everything in force: file and object.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &File, &Object)> {
        self.in_force.iter().flat_map(|(name, file)| {
            let objects = file.objects.iter();
            objects.map(move |object| (name.as_str(), file.as_ref(), object))
        })
    }

    /// The address of a Service that is in force and not headless.
    pub(super) fn address(&self, service: &Service) -> Option<Ipv4Addr> {
        self.allocator
            .address(&ObjectId::of(&service.metadata, "").key())
    }

    /// What is not in force, and why.
    pub(super) fn refusals(&self) -> Vec<Refusal> {
        let problems = self.invalid.iter().chain(&self.refused);
        let refusal = |(name, problem): (&String, &String)| Refusal {
            file: name.clone(),
            problem: problem.clone(),
            has_valid_version: self.in_force.contains_key(name),
        };
        problems.map(refusal).collect()
    }

    pub(super) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// To be saved for the agent's next run.
    pub(super) fn in_force(&self) -> BTreeMap<&str, &File> {
        let files = self.in_force.iter();
        files.map(|(name, file)| (name.as_str(), &**file)).collect()
    }
}

/// Gives every Service of `files` its address.
fn assign(allocator: &Allocator, files: &ByName) -> Result<Allocator, String> {
    let objects = files.values().flat_map(|file| &file.objects);
    let services = objects.filter_map(|object| match object {
        Object::Service(service) => Some((object.id(), wanted_ip(service))),
        _ => None,
    });
    let mut wanted: Vec<_> = services.filter(|(_id, ip)| *ip != Some(HEADLESS)).collect();
    // Who asks for an address comes before who takes any.
    wanted.sort_by_key(|(_id, ip)| ip.is_none());
    let mut allocator = allocator.clone();
    let keys: BTreeSet<String> = wanted.iter().map(|(id, _ip)| id.key()).collect();
    allocator.release_others(&keys);
    for (id, ip) in wanted {
        allocator
            .allocate(&id.key(), ip)
            .map_err(|error| format!("{id}: spec.clusterIP: {error}"))?;
    }
    Ok(allocator)
}

/// `spec.clusterIP` of a Service without an address.
pub(super) const HEADLESS: &str = "None";

pub(super) fn wanted_ip(service: &Service) -> Option<&str> {
    let ip = service.spec.as_ref()?.cluster_ip.as_deref();
    ip.filter(|ip| !ip.is_empty())
}

#[cfg(test)]
mod tests;
