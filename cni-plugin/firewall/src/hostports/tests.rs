use super::*;

fn host_port(host_ip: Option<&str>, pod: &str) -> HostPort {
    HostPort {
        protocol: Protocol::Udp,
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
        host_port: 8080,
        pod: pod.parse().unwrap(),
        pod_port: 53,
    }
}

#[test]
fn elements_have_fields_of_whole_words() {
    let element = host_port(None, "10.1.2.3").element();
    assert_eq!(element.set, EVERYWHERE);
    assert_eq!(element.key, [17, 0, 0, 0, 0x1f, 0x90, 0, 0]);
    assert_eq!(element.data, [10, 1, 2, 3, 0, 53, 0, 0]);
    let element = host_port(Some("192.0.2.1"), "10.1.2.3").element();
    assert_eq!(element.set, AT_ADDRESS);
    assert_eq!(element.key, [192, 0, 2, 1, 17, 0, 0, 0, 0x1f, 0x90, 0, 0]);
    assert_eq!(host_port(None, "fd00::3").element().data.len(), 20);
    assert_eq!(hairpin("fd00::3".parse().unwrap()).key.len(), 32);
}

#[test]
fn elements_are_told_by_their_pod() {
    for pod in ["10.1.2.3", "fd00::3"] {
        let pod: IpAddr = pod.parse().unwrap();
        let element = host_port(None, &pod.to_string()).element();
        assert!(belongs_to(element.set, &element.key, &element.data, pod));
        let hairpin = hairpin(pod);
        assert!(belongs_to(HAIRPINS, &hairpin.key, &hairpin.data, pod));
        for other in ["10.1.2.4", "fd00::4"] {
            let other = other.parse().unwrap();
            assert!(!belongs_to(element.set, &element.key, &element.data, other));
            assert!(!belongs_to(HAIRPINS, &hairpin.key, &[], other));
        }
    }
}

#[test]
fn golden() {
    let text = ruleset(Family::V4).to_string();
    let comment = text.find(" comment ").unwrap();
    let hash = text[comment..].split(' ').nth(3).unwrap().to_owned();
    let want = "\
table ip seaway {
	chain hostports {
		dnat ip to ip daddr . meta l4proto . th dport map @hostports-at comment \"hostports HASH 1/2\"
		dnat ip to meta l4proto . th dport map @hostports-any comment \"hostports HASH 2/2\"
	}
	chain hostports-in {
		type nat hook prerouting priority -95; policy accept;
		fib daddr type local jump hostports comment \"hostports HASH 1/1\"
	}
	chain hostports-out {
		type nat hook output priority -95; policy accept;
		fib daddr type local jump hostports comment \"hostports HASH 1/1\"
	}
	chain hostports-masquerade {
		type nat hook postrouting priority 100; policy accept;
		ip saddr . ip daddr @hostports-pods masquerade fully-random comment \"hostports HASH 1/2\"
		ip saddr 127.0.0.0/8 oifname \"sw*\" masquerade fully-random comment \"hostports HASH 2/2\"
	}
	chain hostports-guard {
		type filter hook prerouting priority -300; policy accept;
		iifname \"sw*\" ip daddr 127.0.0.0/8 drop comment \"hostports HASH 1/1\"
	}
}
";
    assert_eq!(text.replace(&hash, "HASH"), want);
    let six = ruleset(Family::V6).to_string();
    assert!(six.contains("ip6 daddr ::1 return"), "{six}");
    assert!(!six.contains("guard"), "{six}");
}
