//! `seaway-proxy install` and `cleanup` on a node's folders, the life of the CNI conf
//! in between, and the plugin's STATUS, which has to agree with it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "other suites use the rest")]
#[path = "netns_cni/node.rs"]
mod cni;
#[path = "netns_install/conf.rs"]
mod conf;
#[allow(dead_code, reason = "other suites use the rest")]
#[path = "netns_proxy_daemon/node.rs"]
mod daemon;
#[path = "netns_install/disk.rs"]
mod disk;
#[path = "netns_install/killed.rs"]
mod killed;
#[path = "netns_install/refused.rs"]
mod refused;
#[path = "netns_install/removal.rs"]
mod removal;
#[path = "netns_install/status.rs"]
mod status;
#[path = "netns_install/sysctls.rs"]
mod sysctls;
#[path = "netns_install/upgrade.rs"]
mod upgrade;
