//! What of ours is on a node, as other programs see it.

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::Node;

/// Files and folders with our name. The fixture's folders and what our agent has are none of it.
const FILES: &str = "\
find /etc/cni /opt/cni /run /sys/fs/bpf /etc/NetworkManager /var/lib/seaway -mindepth 1 -xdev \
    \\( -path '/run/containerd/*' -o -path '/run/seaway-agent' -o -path '/run/seaway/agent.*' \\) -prune \
    -o \\( -path '*seaway*' -o -path '/opt/cni/bin/*' -o -path '/etc/cni/net.d/*' \\) -print \
    2>/dev/null | if [ -e /run/seaway/agent.lock ]; then grep -vx /run/seaway; else cat; fi || true";

/// Each begins with what it is: `file`, `link`, `route`, `rule`, `rules`.
pub(crate) fn of(node: &Node) -> Result<Vec<String>> {
    let mut found = lines(node, "file", FILES, |_| true)?;
    let is_ours = |line: &str| line.contains("seaway") || line.contains("SEAWAY");
    found.extend(lines(node, "link", "ip -o link", |line| {
        let name = line
            .split([' ', ':', '@'])
            .find(|word| word.starts_with("sw"));
        line.contains("seaway.vx") || name.is_some_and(|name| name.len() == 14)
    })?);
    let routes = "ip -4 route show table all proto 83; ip -6 route show table all proto 83";
    found.extend(lines(node, "route", routes, |_| true)?);
    let rules = "ip -4 rule show; ip -6 rule show";
    found.extend(lines(node, "rule", rules, |line| line.starts_with("83:"))?);
    found.extend(lines(node, "rules", "nft list ruleset", is_ours)?);
    let legacy = "iptables-legacy-save; ip6tables-legacy-save";
    found.extend(lines(node, "rules", legacy, is_ours)?);
    found.extend(lines(node, "set", "ipset list -name", is_ours)?);
    Ok(found)
}

fn lines(
    node: &Node,
    what: &str,
    script: &str,
    counts: impl Fn(&str) -> bool,
) -> Result<Vec<String>> {
    let output = node.command("sh").args(["-c", script]).output();
    let output = output.context("start sh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{script}: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| counts(line));
    Ok(lines.map(|line| format!("{what} {line}")).collect())
}
