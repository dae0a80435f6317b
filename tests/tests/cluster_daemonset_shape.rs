//! A DaemonSet of the shape of our own runs on our agent.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use seaway_testbed::cluster::scenario::step;
use seaway_testbed::cluster::{Cluster, ClusterOptions, NodeOptions, Proxy, tool, until};
use seaway_testbed::require_root;

const MANIFEST: &str = include_str!("cluster_daemonset_shape/shape.yaml");
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn a_daemonset_like_our_own_runs() {
    if !require_root() {
        return;
    }
    let mut options = ClusterOptions::of(vec![NodeOptions::seaway(Proxy::SeawayEbpf)]);
    // An API server that is absent at start is waited for, with words in the log.
    options.api_last = true;
    let cluster = Cluster::start(&options).unwrap();
    let tools = tool("kubectl");
    let tools = tools.parent().unwrap().to_str().unwrap();
    cluster.apply(&MANIFEST.replace("TOOLS", tools)).unwrap();
    let pod = until("the DaemonSet is ready", PATIENCE, || {
        cluster.check_alive()?;
        let ready = cluster.kubectl(&[
            "get",
            "daemonset",
            "shape",
            "-n",
            "kube-system",
            "-o",
            "jsonpath={.status.numberReady}",
        ])?;
        let pods = cluster.kubectl(&["get", "pods", "-n", "kube-system", "-o", "name"])?;
        Ok((ready == "1").then(|| pods.trim().to_owned()))
    })
    .unwrap();
    let shape = Shape { cluster, pod };
    shape.step("environment", Shape::environment);
    shape.step("volumes and mount propagation", Shape::volumes);
    shape.step("rights", Shape::rights);
    shape.step("the API, with the pod's own token", Shape::api);
    shape.step(
        "a failing liveness probe restarts the container",
        Shape::liveness,
    );
}

struct Shape {
    cluster: Cluster,
    /// `pod/NAME`
    pod: String,
}

impl Shape {
    fn step(&self, name: &str, check: impl FnOnce(&Self)) {
        let done = step(name, || {
            check(self);
            Ok(())
        });
        done.unwrap();
    }

    #[track_caller]
    fn exec(&self, container: &str, command: &str) -> String {
        let words = [
            "exec",
            "-n",
            "kube-system",
            &self.pod,
            "-c",
            container,
            "--",
            "sh",
            "-c",
            command,
        ];
        self.cluster.kubectl(&words).unwrap().trim_end().to_owned()
    }

    /// Runs a command line on the node.
    #[track_caller]
    fn on_node(&self, command: &str) -> String {
        let output = self.cluster.nodes()[0]
            .command("sh")
            .args(["-c", command])
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    fn environment(&self) {
        let name = self.pod.trim_start_matches("pod/");
        let expected = [
            ("NODE_NAME", "node-1"),
            ("HOST_IP", "172.30.0.11"),
            ("POD_IP", "172.30.0.11"),
            ("POD_NAME", name),
            ("POD_NAMESPACE", "kube-system"),
            ("MODE", "from-a-configmap"),
            ("PASSWORD", "from-a-secret"),
            ("EXPANDED", "node-1/from-a-configmap"),
            ("ALL_mode", "from-a-configmap"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ];
        let variables = self.exec("proxy", "tr '\\0' '\\n' < /proc/1/environ");
        for (variable, value) in expected {
            let line = format!("{variable}={value}");
            assert!(
                variables.lines().any(|found| found == line),
                "no {line} in:\n{variables}"
            );
        }
    }

    fn volumes(&self) {
        assert!(
            self.on_node("cat /opt/cni/bin/shape").contains("root"),
            "the init container"
        );
        assert_eq!(
            self.exec("proxy", "cat /etc/shape/dir/shape.conf"),
            "a line of configuration"
        );
        assert_eq!(
            self.exec("proxy", "cat /etc/shape-secret/password"),
            "from-a-secret"
        );
        let mode = self.exec("proxy", "stat -L -c %a /etc/shape-secret/password");
        assert_eq!(mode, "400");
        // Out of the privileged container to the node, and from there into the other container.
        self.exec(
            "proxy",
            "mkdir -p /run/shape/m && mount -t tmpfs none /run/shape/m",
        );
        self.exec("proxy", "echo seen > /run/shape/m/file");
        assert_eq!(self.on_node("cat /run/shape/m/file"), "seen");
        assert_eq!(self.exec("watcher", "cat /run/shape/m/file"), "seen");
        self.on_node("umount /run/shape/m");
        assert_eq!(self.exec("watcher", "ls /run/shape/m"), "");
    }

    fn rights(&self) {
        // CAP_NET_ADMIN is bit 12, CAP_BPF bit 39 (linux/capability.h).
        assert_eq!(
            self.exec("watcher", "grep ^CapEff /proc/1/status | cut -f2"),
            "0000008000001000"
        );
        assert_eq!(
            self.exec("proxy", "ip -o link | grep -c eth0"),
            "1",
            "the node's network"
        );
        let pods = [
            "get",
            "-n",
            "kube-system",
            &self.pod,
            "-o",
            "jsonpath={.status.podIP}",
        ];
        assert_eq!(self.cluster.kubectl(&pods).unwrap(), "172.30.0.11");
    }

    fn api(&self) {
        let asked = self.exec("proxy", "/tools/kubectl get node $NODE_NAME -o name");
        assert_eq!(asked, "node/node-1");
        let denied = self.exec("proxy", "/tools/kubectl get secrets 2>&1 || true");
        assert!(
            denied.contains("system:serviceaccount:kube-system:shape"),
            "the API should know the pod by its token: {denied}"
        );
    }

    fn liveness(&self) {
        // A busy machine may have seemed to hang before.
        let (before, _) = self.restarts();
        // It hangs: alive for the kernel, dead for whoever asks it.
        self.on_node("kill -STOP $(pgrep -f '[a]gnhost netexec --http-port=18080')");
        until("the container runs again", PATIENCE, || {
            let (restarts, ready) = self.restarts();
            Ok((ready && restarts > before).then_some(()))
        })
        .unwrap();
    }

    /// How often the container has been started again, and whether it is ready.
    #[track_caller]
    fn restarts(&self) -> (u32, bool) {
        let path = "jsonpath={.status.containerStatuses[?(@.name==\"proxy\")].restartCount} \
                    {.status.containerStatuses[?(@.name==\"proxy\")].ready}";
        let words = ["get", "-n", "kube-system", &self.pod, "-o", path];
        let told = self.cluster.kubectl(&words).unwrap();
        let (count, ready) = told.split_once(' ').unwrap();
        let count = count.parse::<u32>();
        let count = count.unwrap_or_else(|e| panic!("{e}: {told:?}"));
        (count, ready == "true")
    }
}
