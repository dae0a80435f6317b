#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::save;

const SAVED: &str = r#"*filter
:INPUT ACCEPT [0:0]
:SEAWAY-LOCALHOST - [0:0]
:SEAWAY-SERVICES - [0:0]
-A INPUT -m comment --comment "seaway services" -j SEAWAY-LOCALHOST
-A INPUT -m conntrack --ctstate NEW -m comment --comment "seaway services" -j SEAWAY-SERVICES
-A SEAWAY-LOCALHOST ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:SEAWAY-SERVICES - [0:0]
-A PREROUTING -m comment --comment "seaway services" -j SEAWAY-SERVICES
COMMIT
"#;

#[test]
fn what_keeps_strangers_from_loopback_addresses_can_stay_alone() {
    let have = Rendered {
        v4: save::parse(SAVED).unwrap(),
        ..Rendered::default()
    };
    let left = guard(&have);
    let all = have.v4.transactions_to(&left.v4, usize::MAX);
    assert_eq!(
        all.iter().map(ToString::to_string).collect::<String>(),
        r#"*filter
:SEAWAY-SERVICES - [0:0]
-D INPUT -m conntrack --ctstate NEW -m comment --comment "seaway services" -j SEAWAY-SERVICES
-X SEAWAY-SERVICES
COMMIT
*nat
:SEAWAY-SERVICES - [0:0]
-D PREROUTING -m comment --comment "seaway services" -j SEAWAY-SERVICES
-X SEAWAY-SERVICES
COMMIT
"#
    );
}
