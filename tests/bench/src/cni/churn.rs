//! What is left of many pods that have come and gone: nothing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::Effort;
use crate::plugin::{self, Plugin, Pod};
use crate::report::Row;
use crate::site::Site;
use crate::stats::{Bound, exact};

const THREADS: usize = 16;
/// The first port of the node that a pod gets.
const FIRST_PORT: u16 = 20_000;
/// One pod in so many has a port of the node.
const PORT_EVERY: usize = 10;

pub(super) fn measure(effort: Effort) -> Result<Vec<Row>> {
    let site = Site::new(effort.churn)?;
    let plugin = plugin::ours(true, site.dir());
    let pods = site.attachments();
    // The node's own tables and chains come with its first pod and stay.
    let first = &site.attachments()[..1];
    let opener = plugin.with_port(FIRST_PORT);
    one_after_the_other(&site, &opener, "ADD", first)?;
    one_after_the_other(&site, &opener, "DEL", first)?;
    let before = things(&site)?;
    call_all(&site, &plugin, "ADD", &pods)?;
    let between = things(&site)?;
    // A link, two routes in each family's tables and two records at the least.
    let added = between.difference(&before).count();
    if added < 5 * pods.len() {
        bail!("{} pods have made only {added} things", pods.len());
    }
    call_all(&site, &plugin, "DEL", &pods)?;
    let after = things(&site)?;
    let left: Vec<_> = after.symmetric_difference(&before).collect();
    for line in &left {
        eprintln!("left over or missing: {line}");
    }
    let row = Row::alone("left of all pods", "things", exact(left.len()));
    let row = row.beside("were there", exact(added));
    Ok(vec![row.bound(Bound::AtMost(0.0))])
}

fn one_after_the_other(site: &Site, plugin: &Plugin, verb: &str, pods: &[Pod]) -> Result<()> {
    site.enter(|| {
        pods.iter()
            .try_for_each(|pod| plugin.call(verb, pod).map(drop))
    })
}

/// Calls many at once, some of them with a port of the node.
fn call_all(site: &Site, plugin: &Plugin, verb: &str, pods: &[Pod]) -> Result<()> {
    let (with, without): (Vec<_>, Vec<_>) = pods
        .iter()
        .cloned()
        .enumerate()
        .partition(|(n, _)| n % PORT_EVERY == 0);
    let without: Vec<Pod> = without.into_iter().map(|(_, pod)| pod).collect();
    site.at_once(THREADS, &without, |pod| plugin.call(verb, pod).map(drop))?;
    for (port, (_, pod)) in (FIRST_PORT..).zip(with) {
        one_after_the_other(site, &plugin.with_port(port), verb, &[pod])?;
    }
    Ok(())
}

/// Every link, address, route, neighbour, rule and record, a line for each.
fn things(site: &Site) -> Result<BTreeSet<String>> {
    let mut things = BTreeSet::new();
    for args in [
        "-o link",
        "-o addr",
        "-o -4 route show table all",
        "-o -6 route show table all",
        "-o neigh show nud all",
        "-o -4 rule",
        "-o -6 rule",
    ] {
        let text = site.node.ip(args);
        things.extend(text.lines().map(|line| format!("{args}: {}", line.trim())));
    }
    let rules = site.node.run(&["nft", "--stateless", "list", "ruleset"]);
    if !rules.status.success() {
        bail!(
            "nft list ruleset: {}",
            String::from_utf8_lossy(&rules.stderr)
        );
    }
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    things.extend(rules.lines().map(|line| format!("nft: {}", line.trim())));
    records(&site.dir().join("cni"), &mut things)?;
    Ok(things)
}

fn records(dir: &Path, things: &mut BTreeSet<String>) -> Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", dir.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            records(&entry.path(), things)?;
        } else if name.contains('=') {
            things.insert(format!("record: {name}"));
        }
    }
    Ok(())
}
