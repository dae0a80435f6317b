//! Expressions as iptables 1.8.9 writes them, and what others may write.

use super::super::attributes::{append, encode};
use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, kind, value);
    bytes
}

fn numbered(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// A value as data of an expression.
fn value(kind: u16, bytes: &[u8]) -> Vec<u8> {
    attribute(kind, &attribute(1, bytes))
}

fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    let mut element = Vec::new();
    encode(&mut element, 1, name);
    element.extend(attribute(2, &data.concat()));
    attribute(1, &element)
}

fn payload(header: u32, offset: u32, length: u32) -> Vec<u8> {
    let data = [(1, 1), (2, header), (3, offset), (4, length)];
    expression(
        "payload",
        &data.map(|(kind, number)| numbered(kind, number)),
    )
}

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[numbered(2, key), numbered(1, 1)])
}

fn compare(how: u32, bytes: &[u8]) -> Vec<u8> {
    let data = [numbered(1, 1), numbered(2, how), value(3, bytes)];
    expression("cmp", &data)
}

fn mask(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    let zero = vec![0; bytes.len()];
    let data = [
        numbered(1, 1),
        numbered(2, 1),
        numbered(3, length),
        numbered(6, 0),
        value(4, bytes),
        value(5, &zero),
    ];
    expression("bitwise", &data)
}

fn extension(kind: &str, name: &str, revision: u32, info: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    encode(&mut data, 1, name);
    data.extend(numbered(2, revision));
    data.extend(attribute(3, info));
    expression(kind, &[data])
}

fn counter() -> Vec<u8> {
    expression("counter", &[attribute(1, &[0, 0, 0, 0, 0, 0, 0, 9])])
}

fn verdict(code: i32, chain: &str) -> Vec<u8> {
    let mut verdict = numbered(1, code.cast_unsigned());
    if !chain.is_empty() {
        encode(&mut verdict, 2, chain);
    }
    let data = [numbered(1, 0), attribute(2, &attribute(2, &verdict))];
    expression("immediate", &data)
}

fn info(length: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut info = vec![0; length];
    for (place, bytes) in parts {
        info[*place..place + bytes.len()].copy_from_slice(bytes);
    }
    info
}

fn tcp() -> Vec<u8> {
    [meta(16), compare(0, &[6])].concat()
}

fn go() -> Vec<u8> {
    [counter(), verdict(-4, "SEAWAY-SVC-1")].concat()
}

fn of(family: Family, expressions: &[u8]) -> Option<String> {
    let mut sets = |number| (number == 7).then(|| "SEAWAY-4-7".to_owned());
    super::of(family, expressions, &mut sets)
}

#[track_caller]
fn check(family: Family, parts: &[Vec<u8>], expected: &str) {
    let words = of(family, &parts.concat());
    assert_eq!(words.as_deref(), Some(expected));
}

#[test]
fn the_way_to_a_service() {
    let comment = info(256, &[(0, b"default/web:http")]);
    let comment = extension("match", "comment", 0, &comment);
    let port = [payload(2, 2, 2), compare(0, &[0, 80])].concat();
    let v4 = [payload(1, 16, 4), compare(0, &[10, 96, 0, 10])].concat();
    let parts = [tcp(), v4, comment, port, go()];
    let words = "-d 10.96.0.10/32 -p tcp -m comment --comment \"default/web:http\" \
                 -m tcp --dport 80 -g SEAWAY-SVC-1";
    check(Family::V4, &parts, words);
    assert_eq!(target(&parts.concat()), Some("SEAWAY-SVC-1"));
    let net = [payload(1, 24, 16), mask(&info(16, &[(0, &[0xff, 0xf0])]))].concat();
    let parts = [net, compare(0, &info(16, &[(0, &[0xfd, 0x10])])), go()];
    check(Family::V6, &parts, "-d fd10::/12 -g SEAWAY-SVC-1");
}

#[test]
fn networks_and_links() {
    let bytes = [payload(1, 12, 2), compare(1, &[127, 1]), verdict(-5, "")];
    check(Family::V4, &bytes, "! -s 127.1.0.0/16 -j RETURN");
    let bits = [
        payload(1, 12, 4),
        mask(&[255, 255, 255, 128]),
        compare(0, &[10, 0, 0, 128]),
        verdict(0, ""),
    ];
    check(Family::V4, &bits, "-s 10.0.0.128/25 -j DROP");
    let link = [meta(6), compare(0, b"eth0\0"), verdict(1, "")];
    check(Family::V4, &link, "-i eth0 -j ACCEPT");
    let links = [meta(6), compare(0, b"ve"), verdict(-3, "X")];
    check(Family::V4, &links, "-i ve+ -j X");
}

#[test]
fn ports_by_whatever_they_are_compared() {
    let port = payload(2, 2, 2);
    for (test, expected) in [
        (compare(0, &[0x75, 0x30]), "30000"),
        (compare(3, &[0, 255]), "0:255"),
        (compare(5, &[0xf0, 0]), "61440:65535"),
        (
            expression(
                "range",
                &[
                    numbered(1, 1),
                    numbered(2, 0),
                    value(3, &[0, 1]),
                    value(4, &[0, 2]),
                ],
            ),
            "1:2",
        ),
    ] {
        let words = format!("-p tcp -m tcp --dport {expected} -g SEAWAY-SVC-1");
        check(Family::V4, &[tcp(), port.clone(), test, go()], &words);
    }
    let any = u16::MAX.to_ne_bytes();
    let port = [80u16.to_ne_bytes(), 81u16.to_ne_bytes()].concat();
    let old = extension("match", "tcp", 0, &info(12, &[(2, &any), (4, &port)]));
    let words = "-p tcp -m tcp --dport 80:81 -g SEAWAY-SVC-1";
    check(Family::V4, &[tcp(), old, go()], words);
    let ours = info(296, &[(0, &port), (284, &2u32.to_ne_bytes())]);
    let sctp = [
        meta(16),
        compare(0, &[132]),
        extension("match", "sctp", 0, &ours),
    ]
    .concat();
    let words = "-p sctp -m sctp --dport 80:81 -g SEAWAY-SVC-1";
    check(Family::V4, &[sctp, go()], words);
}

#[test]
fn translation_and_marks() {
    let third = info(24, &[(4, &0x2aaa_aaabu32.to_ne_bytes())]);
    let third = extension("match", "statistic", 0, &third);
    let (addr, port) = ([10, 0, 0, 1], [0x1f, 0x90]);
    let parts: [(usize, &[u8]); 5] = [
        (0, &3u32.to_ne_bytes()),
        (4, &addr),
        (20, &addr),
        (36, &port),
        (38, &port),
    ];
    let dnat = extension("target", "DNAT", 2, &info(48, &parts));
    let words = "-p tcp -m statistic --mode random --probability 0.33333333349 \
                 -j DNAT --to-destination 10.0.0.1:8080";
    check(Family::V4, &[tcp(), third, counter(), dnat.clone()], words);
    check(
        Family::V6,
        &[dnat],
        "-j DNAT --to-destination [a00:1::]:8080",
    );
    let bit = 0x4000u32.to_ne_bytes();
    let mark = extension("target", "MARK", 2, &info(8, &[(0, &bit)]));
    check(Family::V4, &[mark], "-j MARK --set-xmark 0x4000/0x0");
    let parts = [meta(3), mask(&bit), compare(0, &bit), verdict(-3, "M")];
    check(Family::V4, &parts, "-m mark --mark 0x4000/0x4000 -j M");
    let random = 16u32.to_ne_bytes();
    let v4 = info(24, &[(0, &1u32.to_ne_bytes()), (4, &random)]);
    for (family, info) in [(Family::V4, v4), (Family::V6, info(40, &[(0, &random)]))] {
        let masquerade = extension("target", "MASQUERADE", 0, &info);
        check(family, &[masquerade], "-j MASQUERADE --random-fully");
    }
}

#[test]
fn states_and_refusals() {
    let of = |inverted: u16, states: u16| {
        let [flags, inverted, states] = [1, inverted, states].map(u16::to_ne_bytes);
        let info = info(168, &[(146, &flags), (148, &inverted), (150, &states)]);
        extension("match", "conntrack", 3, &info)
    };
    let parts = [of(1, 0b1000_0110), verdict(0, "")];
    let words = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
    check(Family::V4, &parts, words);
    let local = extension(
        "match",
        "addrtype",
        1,
        &info(8, &[(2, &4u16.to_ne_bytes())]),
    );
    check(
        Family::V4,
        &[local, go()],
        "-m addrtype --dst-type LOCAL -g SEAWAY-SVC-1",
    );
    for (family, with, what) in [(Family::V4, 3u32, "icmp"), (Family::V6, 4, "icmp6")] {
        let reject = extension("target", "REJECT", 0, &info(8, &[(0, &with.to_ne_bytes())]));
        let words = format!("-j REJECT --reject-with {what}-port-unreachable");
        check(family, &[reject], &words);
    }
}

#[test]
fn sets_by_their_numbers() {
    let matches = |number| extension("match", "set", 4, &info(48, &[(0, &[number, 0, 1, 2])]));
    let words = "-m set --match-set SEAWAY-4-7 src -g SEAWAY-SVC-1";
    check(Family::V4, &[matches(7), go()], words);
    assert_eq!(of(Family::V4, &[matches(8), go()].concat()), None);
    let (none, timeout) = (u16::MAX.to_ne_bytes(), u32::MAX.to_ne_bytes());
    let exist = 1u32.to_ne_bytes();
    let parts: [(usize, &[u8]); 5] = [
        (0, &[7, 0, 1, 2]),
        (4, &none),
        (8, &none),
        (12, &exist),
        (16, &timeout),
    ];
    let add = |parts| extension("target", "SET", 3, &info(24, parts));
    let words = "-j SET --add-set SEAWAY-4-7 src --exist";
    check(Family::V4, &[add(&parts)], words);
    assert_eq!(of(Family::V4, &add(&parts[..4])), None);
}

/// What is not wholly understood has no words, whatever it is near to.
#[test]
fn strangers_have_no_words() {
    let none = |parts: &[Vec<u8>]| assert_eq!(of(Family::V4, &parts.concat()), None);
    let odd = info(256, &[(0, b"a \"quoted\" word")]);
    none(&[extension("match", "comment", 0, &odd), go()]);
    none(&[extension("match", "comment", 1, &info(256, &[])), go()]);
    none(&[extension("match", "limit", 0, &info(40, &[])), go()]);
    none(&[
        extension("match", "statistic", 0, &info(24, &[(2, &[1])])),
        go(),
    ]);
    // A mask with a hole, a source port, a second destination, a comparison of nothing.
    none(&[
        payload(1, 16, 4),
        mask(&[255, 0, 255, 0]),
        compare(0, &[10, 0, 1, 0]),
        go(),
    ]);
    none(&[tcp(), payload(2, 0, 2), compare(0, &[0, 80]), go()]);
    let destination = [payload(1, 16, 1), compare(0, &[10])].concat();
    none(&[destination.clone(), destination.clone(), go()]);
    none(&[compare(0, &[6]), go()]);
    // A port without a protocol, no target, one target more, and an end that is missing.
    none(&[payload(2, 2, 2), compare(0, &[0, 80]), go()]);
    none(&[destination.clone(), counter()]);
    none(&[go(), go()]);
    let whole = [destination, go()].concat();
    assert!(of(Family::V4, &whole).is_some());
    for length in 1..whole.len() {
        assert_eq!(of(Family::V4, &whole[..length]), None, "{length}");
    }
}
