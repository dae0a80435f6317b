//! From the decisions' plain data to the runtime's wire types.

use seaway_agent_core::container::{ContainerConfig, Mount, Propagation};
use seaway_agent_core::qos::LinuxResources;
use seaway_agent_core::sandbox::{NamespaceMode, Namespaces, PortMapping, Protocol, SandboxConfig};
use seaway_agent_core::security::{Seccomp, SecurityConfig};
use seaway_agent_cri::v1;

pub(super) fn sandbox(config: &SandboxConfig) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.clone(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.clone(),
        dns_config: Some(v1::DnsConfig {
            servers: config.dns.servers.clone(),
            searches: config.dns.searches.clone(),
            options: config.dns.options.clone(),
        }),
        port_mappings: config.port_mappings.iter().map(port_mapping).collect(),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(v1::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(config.namespaces)),
                run_as_user: config.run_as_user.map(int64),
                run_as_group: group(config.run_as_user, config.run_as_group),
                supplemental_groups: config.supplemental_groups.clone(),
                privileged: config.privileged,
                seccomp: Some(seccomp(config.seccomp)),
            }),
        }),
    }
}

fn port_mapping(port: &PortMapping) -> v1::PortMapping {
    let protocol = match port.protocol {
        Protocol::Tcp => v1::Protocol::Tcp,
        Protocol::Udp => v1::Protocol::Udp,
        Protocol::Sctp => v1::Protocol::Sctp,
    };
    v1::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
    }
}

pub(super) fn container(config: ContainerConfig) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: config.name,
            attempt: config.attempt,
        }),
        image: Some(v1::ImageSpec {
            image: config.image_ref,
            user_specified_image: config.image,
        }),
        command: config.command,
        args: config.args,
        working_dir: config.working_dir,
        envs: config
            .env
            .into_iter()
            .map(|(key, value)| v1::KeyValue {
                key,
                value: value.into_bytes(),
            })
            .collect(),
        mounts: config.mounts.into_iter().map(mount).collect(),
        labels: config.labels.into_iter().collect(),
        annotations: config.annotations.into_iter().collect(),
        log_path: config.log_path,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources(config.resources)),
            security_context: Some(security(config.security, config.namespaces)),
        }),
    }
}

fn mount(mount: Mount) -> v1::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => v1::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => v1::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => v1::MountPropagation::PropagationBidirectional,
    };
    v1::Mount {
        container_path: mount.container_path,
        host_path: mount.host_path.to_string_lossy().into_owned(),
        readonly: mount.read_only,
        propagation: propagation.into(),
    }
}

fn resources(resources: LinuxResources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
    }
}

fn security(config: SecurityConfig, ns: Namespaces) -> v1::LinuxContainerSecurityContext {
    v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: config.add_capabilities,
            drop_capabilities: config.drop_capabilities,
        }),
        privileged: config.privileged,
        namespace_options: Some(namespaces(ns)),
        run_as_user: config.run_as_user.map(int64),
        run_as_username: String::new(),
        readonly_rootfs: config.read_only_root,
        supplemental_groups: config.supplemental_groups,
        no_new_privs: config.no_new_privileges,
        run_as_group: group(config.run_as_user, config.run_as_group),
        masked_paths: config.masked_paths,
        readonly_paths: config.readonly_paths,
        seccomp: Some(seccomp(config.seccomp)),
    }
}

fn namespaces(namespaces: Namespaces) -> v1::NamespaceOption {
    let mode = |mode| -> i32 {
        match mode {
            NamespaceMode::Pod => v1::NamespaceMode::Pod,
            NamespaceMode::Container => v1::NamespaceMode::Container,
            NamespaceMode::Node => v1::NamespaceMode::Node,
        }
        .into()
    };
    v1::NamespaceOption {
        network: mode(namespaces.network),
        pid: mode(namespaces.pid),
        ipc: mode(namespaces.ipc),
    }
}

fn seccomp(seccomp: Seccomp) -> v1::SecurityProfile {
    let profile = match seccomp {
        Seccomp::RuntimeDefault => v1::security_profile::ProfileType::RuntimeDefault,
        Seccomp::Unconfined => v1::security_profile::ProfileType::Unconfined,
    };
    v1::SecurityProfile {
        profile_type: profile.into(),
    }
}

/// The API of the runtime refuses a group without a user.
fn group(user: Option<i64>, group: Option<i64>) -> Option<v1::Int64Value> {
    user.and(group).map(int64)
}

fn int64(value: i64) -> v1::Int64Value {
    v1::Int64Value { value }
}
