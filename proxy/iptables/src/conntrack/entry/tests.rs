#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, kind, value);
    out
}

fn tuple(protocol: u8, src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let (from, to) = if src.is_ipv4() {
        (IP_V4_SRC, IP_V4_DST)
    } else {
        (IP_V6_SRC, IP_V6_DST)
    };
    let ips = [
        attribute(from, &octets(src.ip())),
        attribute(to, &octets(dst.ip())),
    ]
    .concat();
    let ports = [
        attribute(PROTO_NUM, &[protocol]),
        attribute(PROTO_SRC_PORT, &src.port().to_be_bytes()),
        attribute(PROTO_DST_PORT, &dst.port().to_be_bytes()),
    ]
    .concat();
    [
        attribute(TUPLE_IP | NESTED, &ips),
        attribute(TUPLE_PROTO | NESTED, &ports),
    ]
    .concat()
}

fn message(protocol: u8, [client, vip, pod]: [&str; 3], more: &[u8]) -> Vec<u8> {
    let [client, vip, pod] = [client, vip, pod].map(|addr| addr.parse().unwrap());
    [
        vec![2, 0, 0, 0],
        attribute(TUPLE_ORIG | NESTED, &tuple(protocol, client, vip)),
        attribute(TUPLE_REPLY | NESTED, &tuple(protocol, pod, client)),
        attribute(3, &[0; 4]),
        attribute(ID, &[1, 2, 3, 4]),
        more.to_vec(),
    ]
    .concat()
}

const V4: [&str; 3] = ["10.244.9.2:4000", "10.96.0.10:53", "10.244.0.2:5353"];

#[test]
fn both_directions_are_read() {
    for (number, protocol) in [(UDP, Protocol::Udp), (SCTP, Protocol::Sctp)] {
        let entry = Entry::parse(&message(number, V4, &[])).unwrap();
        assert_eq!(entry.protocol, protocol);
        assert_eq!(
            (entry.to.to_string(), entry.answers.to_string()),
            (V4[1].into(), V4[2].into())
        );
        // The whole tuple and the number: without a tuple the kernel would remove everything.
        let mut key = attribute(
            TUPLE_ORIG | NESTED,
            &tuple(number, V4[0].parse().unwrap(), V4[1].parse().unwrap()),
        );
        key.extend(attribute(ID, &[1, 2, 3, 4]));
        assert_eq!(entry.key, key);
    }
    let v6 = ["[fd00::9]:4000", "[fd00:96::a]:53", "[fd00::2]:5353"];
    let entry = Entry::parse(&message(UDP, v6, &[])).unwrap();
    assert_eq!(
        (entry.to.to_string(), entry.answers.to_string()),
        (v6[1].into(), v6[2].into())
    );
}

#[test]
fn what_is_not_ours_or_not_whole_is_no_entry() {
    assert_eq!(Entry::parse(&message(6, V4, &[])), None);
    let zone = attribute(ZONE, &[0, 7]);
    assert_eq!(Entry::parse(&message(UDP, V4, &zone)), None);
    let whole = message(UDP, V4, &[]);
    for length in 0..108 {
        assert_eq!(Entry::parse(&whole[..length]), None, "{length} bytes");
    }
}
