//! Frontends that agree in long prefixes, among which a way would have a chain for each digit.

use super::*;

/// Its first digit is a 2, and none of the last twelve is.
const NEAR: u128 = 0x2001_0db8_0000_0000_0000_1111_1111_1111;

fn near() -> IpAddr {
    Ipv6Addr::from(NEAR).into()
}

/// The same with this digit in this place, counted from the left.
fn beside(place: usize, digit: u8) -> IpAddr {
    let shift = 4 * (ADDR_V6 - 1 - place);
    let others = NEAR & !(0xf_u128 << shift);
    Ipv6Addr::from(others | (u128::from(digit) << shift)).into()
}

/// Half of them are at one address.
fn any_near() -> impl Strategy<Value = Frontend> {
    let others = (0..ADDR_V6, 0..16u8).prop_map(|(place, digit)| beside(place, digit));
    let addr = prop_oneof![others, Just(near())];
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (addr, 1..=40u16, protocol).prop_map(|(addr, port, protocol)| at(addr, port, protocol))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_way_is_longer_than_the_kernel_takes_and_each_frontend_is_reached(
        frontends in proptest::collection::btree_set(any_near(), 0..200),
        strangers in proptest::collection::vec(any_near(), 20),
    ) {
        let table = table(&frontends);
        prop_assert_eq!(misshapen(&table), [""; 0]);
        for f in &frontends {
            prop_assert_eq!(walk(&table, f).0, Some(f.to_string()));
        }
        for stranger in strangers.iter().filter(|s| !frontends.contains(s)) {
            prop_assert_eq!(walk(&table, stranger).0, None);
        }
    }
}

#[test]
fn seventeen_ports_at_thirteen_near_addresses_go_as_deep_as_they_may() {
    let addrs = (20..ADDR_V6).map(|place| beside(place, 2)).chain([near()]);
    let all = addrs.flat_map(|addr| (80..=96).map(move |port| at(addr, port, Protocol::Tcp)));
    let frontends: BTreeSet<Frontend> = all.collect();
    assert_eq!(frontends.len(), 13 * 17);
    let table = table(&frontends);
    assert_eq!(misshapen(&table), [""; 0]);
    assert_eq!(depths(&table).values().max(), Some(&DEPTH));
    // Two rules on each level, and at the end all ports of the four addresses that are left.
    assert!(longest_walk(&frontends) <= 2 * DEPTH + 4 * 17);
}
