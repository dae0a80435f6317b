//! A node without a control plane: pods and Services from a folder of manifests.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use seaway_testbed::node::{Config, NODE_IP, Node, PATIENCE, all_answer};
use seaway_testbed::require_root;
use seaway_testbed::snapshot::Snapshot;

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
";

/// A web server that answers with its name.
fn web(name: &str) -> String {
    let serve = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www";
    format!(
        "\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: web
      image: {image}
      command: [sh, -c, \"{serve}\"]
      readinessProbe: {{periodSeconds: 1, httpGet: {{port: 8080}}}}
",
        image = seaway_testbed::images::BUSYBOX,
    )
}

/// A pod to ask from.
fn client() -> String {
    format!(
        "\
apiVersion: v1
kind: Pod
metadata: {{name: client}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: client, image: '{image}', command: [sleep, '1000000']}}]
",
        image = seaway_testbed::images::BUSYBOX,
    )
}

/// A node with a Service in front of two web servers, and a client.
fn node_with_web(hint: &str, service_proxy: &str) -> Node {
    let mut node = Node::new(Config::new(hint, service_proxy)).unwrap();
    write_web(&node);
    node.start_agent().unwrap();
    node.wait_ready(&["client", "web-1", "web-2"]).unwrap();
    node
}

fn write_web(node: &Node) {
    node.write_manifest("service.yaml", SERVICE).unwrap();
    for name in ["web-1", "web-2"] {
        node.write_manifest(&format!("{name}.yaml"), &web(name))
            .unwrap();
    }
    node.write_manifest("client.yaml", &client()).unwrap();
}

fn url(node: &Node) -> String {
    let services = node.services().unwrap();
    let web = services
        .iter()
        .find(|service| service.name == "web")
        .unwrap();
    format!("http://{}/", web.cluster_ip)
}

#[track_caller]
fn both_answer(node: &Node) {
    let url = url(node);
    let both = ["web-1", "web-2"];
    all_answer(&both, || node.curl(&url)).unwrap();
    all_answer(&both, || node.wget("client", &url)).unwrap();
}

/// Everything works, and nothing stays behind.
fn a_service_answers(service_proxy: &str) {
    if !require_root() {
        return;
    }
    let before = Snapshot::take().unwrap();
    let node = node_with_web("web", service_proxy);
    for pod in node.pods().unwrap() {
        assert_eq!(pod.phase, "Running", "{pod:?}");
        assert!(pod.ip.starts_with("10.244.1."), "{pod:?}");
    }
    both_answer(&node);
    drop(node);
    before.must_be_restored().unwrap();
}

#[test]
fn a_service_answers_through_ebpf() {
    a_service_answers("ebpf");
}

#[test]
fn a_service_answers_through_iptables() {
    a_service_answers("iptables");
}

#[test]
fn a_pod_that_asks_for_its_own_service_is_answered() {
    if !require_root() {
        return;
    }
    for service_proxy in ["ebpf", "iptables"] {
        let node = node_with_web("hairpin", service_proxy);
        let url = url(&node);
        all_answer(&["web-1", "web-2"], || node.wget("web-1", &url)).unwrap();
    }
}

#[test]
fn a_host_port_leads_to_its_pod_until_that_goes() {
    if !require_root() {
        return;
    }
    let before = Snapshot::take().unwrap();
    let mut node = node_with_web("hostport", "ebpf");
    let ports = "ports: [{containerPort: 8080, hostPort: 8081}]";
    let with_port =
        |name: &str| web(name).replace("readinessProbe", &format!("{ports}\n      readinessProbe"));
    node.write_manifest("front.yaml", &with_port("front"))
        .unwrap();
    node.wait_ready(&["client", "front", "web-1", "web-2"])
        .unwrap();
    let from_node = "http://127.0.0.1:8081/";
    all_answer(&["front"], || node.curl(from_node)).unwrap();
    let url = format!("http://{NODE_IP}:8081/");
    let mut asked = node.place().outside().command("curl");
    let outside = asked.args(["-sS", "-m", "5", &url]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&outside.stdout),
        "front\n",
        "{outside:?}"
    );

    node.write_manifest("second.yaml", &with_port("second"))
        .unwrap();
    node.wait("the second one to be refused", |node| {
        let second = node.pods()?.into_iter().find(|pod| pod.name == "second");
        Ok(match second {
            Some(pod) if pod.phase == "Failed" => Ok(()),
            other => Err(format!("{other:?}")),
        })
    })
    .unwrap();
    node.remove_manifest("second.yaml").unwrap();
    node.remove_manifest("front.yaml").unwrap();
    node.wait("the port to be closed", |node| {
        Ok(node.curl(from_node).map_or(Ok(()), Err))
    })
    .unwrap();
    drop(node);
    before.must_be_restored().unwrap();
}

#[test]
fn manifests_are_followed() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("follow", "ebpf");
    let url = url(&node);
    // Added
    node.write_manifest("web-3.yaml", &web("web-3")).unwrap();
    node.wait_ready(&["client", "web-1", "web-2", "web-3"])
        .unwrap();
    let three = ["web-1", "web-2", "web-3"];
    node.wait("web-3 to answer", |node| {
        Ok(all_answer(&three, || node.curl(&url)).map_err(|error| format!("{error:#}")))
    })
    .unwrap();
    // Changed: it is no longer one of the Service's
    let other = web("web-3").replace("app: web", "app: other");
    node.write_manifest("web-3.yaml", &other).unwrap();
    node.wait("web-3 to answer no more", |node| {
        let answered = (0..20)
            .map(|_| node.curl(&url))
            .collect::<Result<Vec<_>, _>>();
        let answered = answered.map_err(|error| format!("{error:#}"));
        Ok(answered.and_then(|names| {
            if names.iter().any(|name| name == "web-3") {
                Err(format!("{names:?}"))
            } else {
                Ok(())
            }
        }))
    })
    .unwrap();
    // Removed
    for name in ["web-1", "web-3"] {
        node.remove_manifest(&format!("{name}.yaml")).unwrap();
    }
    node.wait_ready(&["client", "web-2"]).unwrap();
    node.wait("web-2 alone to answer", |node| {
        Ok(all_answer(&["web-2"], || node.curl(&url)).map_err(|error| format!("{error:#}")))
    })
    .unwrap();
    // A Service without endpoints refuses, and one that is gone is not there.
    node.remove_manifest("web-2.yaml").unwrap();
    node.wait_ready(&["client"]).unwrap();
    node.wait("the Service to refuse, which is curl's 7", |node| {
        let answer = node.curl(&url).map_err(|error| format!("{error:#}"));
        Ok(match answer {
            Err(refused) if refused.contains("exit status: 7:") => Ok(()),
            Err(other) => Err(other),
            Ok(name) => Err(format!("{name} answers")),
        })
    })
    .unwrap();
    node.remove_manifest("service.yaml").unwrap();
    node.wait("the Service to go", |node| {
        let left = node.services()?.iter().any(|service| service.name == "web");
        Ok(if left {
            Err("it is there".to_owned())
        } else {
            Ok(())
        })
    })
    .unwrap();
}

#[test]
fn an_invalid_manifest_is_named_and_the_rest_runs_on() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("invalid", "ebpf");
    let before = node.pods().unwrap();
    let wrong_field = web("bad-field").replace("command:", "comand:");
    node.write_manifest("bad-field.yaml", &wrong_field).unwrap();
    let wrong_port = SERVICE
        .replace("name: web", "name: bad-port")
        .replace("port: 80,", "port: 99999,");
    node.write_manifest("bad-port.yaml", &wrong_port).unwrap();
    for (file, words) in [
        ("bad-field.yaml", ["bad-field", "comand"]),
        ("bad-port.yaml", ["bad-port", "port"]),
    ] {
        node.wait(&format!("a complaint about {file}"), |node| {
            let log = node.agent().log();
            let named = log.lines().any(|line| {
                (line.contains("WARN") || line.contains("ERROR"))
                    && line.contains(file)
                    && words.iter().all(|word| line.contains(word))
            });
            Ok(if named {
                Ok(())
            } else {
                Err("no line names file, object and field".to_owned())
            })
        })
        .unwrap();
    }
    assert_eq!(node.pods().unwrap(), before);
    both_answer(&node);
    // Corrected, it is taken.
    node.write_manifest("bad-field.yaml", &web("bad-field"))
        .unwrap();
    node.wait_ready(&["bad-field", "client", "web-1", "web-2"])
        .unwrap();
}

#[test]
fn a_crashed_container_is_started_again() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("crash", "ebpf");
    let old = node.pod("web-1").unwrap();
    node.crash("web-1").unwrap();
    let new = node.wait("web-1 to be started again", |node| {
        let now = node.pod("web-1")?;
        let again = now.ready && now.restarts == old.restarts + 1;
        Ok(if again {
            Ok(now)
        } else {
            Err(format!("{now:?}"))
        })
    });
    assert_eq!(new.unwrap().ip, old.ip);
    both_answer(&node);
}

#[test]
fn pods_do_not_notice_that_the_agent_was_killed() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("killed", "ebpf");
    let (pods, url) = (node.pods().unwrap(), url(&node));
    node.agent().kill().unwrap();
    // Nobody is there, and the Service still answers.
    all_answer(&["web-1", "web-2"], || node.curl(&url)).unwrap();
    node.start_agent().unwrap();
    let again = node.wait_ready(&["client", "web-1", "web-2"]).unwrap();
    assert_eq!(
        again, pods,
        "the same containers with the same addresses, none restarted"
    );
    both_answer(&node);
}

#[test]
fn a_manifest_that_is_invalid_when_the_agent_comes_back_ends_nothing() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("comeback", "ebpf");
    let pods = node.pods().unwrap();
    node.agent().kill().unwrap();
    let invalid = web("web-1").replace("command:", "comand:");
    node.write_manifest("web-1.yaml", &invalid).unwrap();
    let out_of_range = SERVICE.replace("selector:", "clusterIP: 192.0.2.1\n  selector:");
    node.write_manifest("service.yaml", &out_of_range).unwrap();
    // A race that is lost now and then would be lost by the third time.
    for _ in 0..3 {
        node.start_agent().unwrap();
        let again = node.wait_ready(&["client", "web-1", "web-2"]).unwrap();
        assert_eq!(again, pods, "the same containers, none restarted");
        both_answer(&node);
        node.agent().kill().unwrap();
    }
}

#[test]
fn a_pod_that_is_put_back_while_it_ends_runs_again() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("putback", "ebpf");
    let old = node.pod("client").unwrap();
    node.remove_manifest("client.yaml").unwrap();
    node.wait("the agent to see it", |node| {
        let log = node.agent().log();
        Ok(if log.contains("Manifest is gone") {
            Ok(())
        } else {
            Err("it has not seen it".to_owned())
        })
    })
    .unwrap();
    node.write_manifest("client.yaml", &client()).unwrap();
    node.wait("another client", |node| {
        let now = node.pods()?.into_iter().find(|pod| pod.name == "client");
        Ok(match now {
            Some(now) if now.ready && now.containers != old.containers => Ok(()),
            other => Err(format!("{other:?}")),
        })
    })
    .unwrap();
}

#[test]
fn the_agent_stops_at_sigterm_and_leaves_the_pods() {
    if !require_root() {
        return;
    }
    let mut node = node_with_web("stopped", "ebpf");
    let url = url(&node);
    let status = node.agent().terminate(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0));
    all_answer(&["web-1", "web-2"], || node.curl(&url)).unwrap();
}

#[test]
fn the_agent_waits_for_containerd() {
    if !require_root() {
        return;
    }
    let mut node = Node::without_containerd(Config::new("waits", "ebpf")).unwrap();
    write_web(&node);
    node.start_agent().unwrap();
    node.wait("a word about containerd's socket", |node| {
        let log = node.agent().log();
        let said = log.contains(seaway_testbed::node::SOCKET);
        Ok(if said {
            Ok(())
        } else {
            Err(format!("the log is\n{log}"))
        })
    })
    .unwrap();
    node.start_containerd().unwrap();
    node.wait_ready(&["client", "web-1", "web-2"]).unwrap();
    both_answer(&node);
}
