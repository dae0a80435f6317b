//! What load balancers may be told of this node's endpoints.

use seaway_proxy_core::desired::{Frontend, FrontendKind, Protocol};
use seaway_proxy_core::skipped::{Kind, SkipReason};

use super::*;

const V4: &str = "10.96.0.1";
const V6: &str = "fd00:96::1";

/// A load balancer's Service of both families, with an endpoint of each on this node.
fn balanced() -> (Service, [EndpointSlice; 2]) {
    let service = json!({
        "metadata": { "namespace": "default", "name": "web" },
        "spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32000,
            "clusterIP": V4, "clusterIPs": [V4, V6],
            "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    });
    let slices = [("IPv4", "10.244.0.5"), ("IPv6", "fd00:244::5")].map(|(kind, ip)| {
        let mut local = slice("web", ip);
        local.metadata.name = Some(format!("web-{kind}"));
        kind.clone_into(&mut local.address_type);
        for endpoint in local.endpoints.iter_mut().flatten() {
            endpoint.node_name = Some("a".to_owned());
        }
        local
    });
    (serde_json::from_value(service).unwrap(), slices)
}

fn skipped(addr: &str, served: bool) -> Skipped {
    let frontend = Frontend {
        addr: addr.parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
        kind: FrontendKind::ClusterIp,
    };
    Skipped {
        kind: Kind::Service,
        object: ObjectKey::new("default", "web"),
        field: "spec.ports".to_owned(),
        reason: SkipReason::Backend {
            frontend,
            why: "for a test".to_owned(),
            served,
        },
    }
}

/// How many endpoints each family's load balancer is told of.
async fn told(serves: &'static [Family], left_out: Vec<Skipped>) -> Vec<(Family, usize)> {
    let mut bench = Bench::new(0, PATIENCE);
    *bench.glass.serves.lock().unwrap() = serves;
    *bench.glass.left_out.lock().unwrap() = left_out;
    let (mut services, mut slices) = bench.intakes();
    let (service, of_both) = balanced();
    services(Event::InitApply(service));
    services(Event::InitDone);
    for one in of_both {
        slices(Event::InitApply(one));
    }
    slices(Event::InitDone);
    bench.synced().await;
    let counts = bench.told.borrow().counts();
    bench.end().await;
    let of_web = |(family, service, count): (Family, String, usize)| {
        assert_eq!(service, "default/web");
        (family, count)
    };
    counts.into_iter().map(of_web).collect()
}

#[tokio::test]
async fn load_balancers_are_told_of_what_this_node_serves_alone() {
    let both = &Family::ALL;
    let all = [(Family::V4, 1), (Family::V6, 1)];
    assert_eq!(told(both, Vec::new()).await, all);
    // Nobody listens where ip6tables does not work.
    let left_out = vec![skipped(V6, false)];
    assert_eq!(told(&[Family::V4], left_out).await, [(Family::V4, 1)]);
    // A module is missing for one of the families.
    let left_out = vec![skipped(V4, false)];
    let none = [(Family::V4, 0), (Family::V6, 1)];
    assert_eq!(told(both, left_out).await, none);
    // Served, though without session affinity.
    let in_part = vec![skipped(V4, true), skipped(V6, true)];
    assert_eq!(told(both, in_part).await, all);
}

#[tokio::test]
async fn a_family_that_cannot_be_written_keeps_no_news_from_the_others_load_balancer() {
    let mut bench = Bench::new(0, PATIENCE);
    let (mut services, mut slices) = bench.intakes();
    let (service, of_both) = balanced();
    services(Event::InitApply(service));
    services(Event::InitDone);
    for one in of_both.clone() {
        slices(Event::InitApply(one));
    }
    slices(Event::InitDone);
    bench.synced().await;
    *bench.glass.broken.lock().unwrap() = Some(Family::V6);
    for one in of_both {
        slices(Event::Delete(one));
    }
    for (broken, of_v6) in [(Some(Family::V6), 1), (None, 0)] {
        *bench.glass.broken.lock().unwrap() = broken;
        let want = [(Family::V4, 0), (Family::V6, of_v6)];
        let is_told = |told: &Wanted| {
            let counts = told.counts().into_iter();
            counts.map(|(family, _, count)| (family, count)).eq(want)
        };
        let told = bench.told.wait_for(is_told);
        assert!(timeout(PATIENCE, told).await.unwrap().is_ok());
    }
    bench.end().await;
}
