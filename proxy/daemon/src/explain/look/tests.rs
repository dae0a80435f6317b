//! What is missing and what is too many, named and counted.

use seaway_proxy_core::fake::Fake;

use super::*;

const WANT: &str = "# IPv4
set SEAWAY-4-a timeout 10800
*filter
:SEAWAY-SERVICES
-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES
*nat
:SEAWAY-SERVICES
-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES
-A SEAWAY-SERVICES -m addrtype --dst-type LOCAL -j SEAWAY-NODE-PORTS
# IPv6
*filter
*nat
";

fn shown(have: &str) -> Vec<String> {
    let found = differences(have, WANT);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_differs_is_named_with_its_family_and_table() {
    assert_eq!(shown(WANT), [""; 0]);
    // The same line is in the other table as well.
    let jump = "-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES\n";
    let (filter, nat) = WANT.split_once("*nat").unwrap();
    let have = format!("{filter}*nat{}", nat.replace(jump, ""));
    assert_eq!(
        shown(&have),
        ["missing in IPv4 nat: -A SEAWAY-SERVICES -j SEAWAY-ADDRESSES"]
    );
    // Twice, where it should be once.
    let have = format!("{filter}{jump}*nat{nat}");
    assert_eq!(
        shown(&have),
        ["extra in IPv4 filter: -A SEAWAY-SERVICES -j SEAWAY-ADDRESSES"]
    );
    let have = WANT.replace("timeout 10800", "timeout 7");
    assert_eq!(
        shown(&have),
        [
            "missing in IPv4: set SEAWAY-4-a timeout 10800",
            "extra in IPv4: set SEAWAY-4-a timeout 7",
        ]
    );
    let have = format!("{WANT}:SEAWAY-SERVICES\n");
    assert_eq!(shown(&have), ["extra in IPv6 nat: :SEAWAY-SERVICES"]);
    let rules: Vec<&str> = nat.lines().skip(2).take(2).collect();
    let have = WANT.replace(
        &format!("{}\n{}", rules[0], rules[1]),
        &format!("{}\n{}", rules[1], rules[0]),
    );
    assert_ne!(have, WANT);
    assert_eq!(shown(&have), ["in another order in the kernel"]);
}

#[test]
fn many_differences_are_counted_and_the_first_are_shown() {
    let look = Look::of(false, differences("", WANT));
    assert_eq!((look.differing, look.first.len()), (6, SHOWN));
    let text = look.to_string();
    assert!(
        text.starts_with("  kernel: not as it should be, being repaired\n    missing in IPv4"),
        "{text}"
    );
    assert!(text.ends_with("\n    and 3 more\n"), "{text}");
    let look = Look::of(false, differences("", ":a\n"));
    assert_eq!(
        look.to_string(),
        "  kernel: not as it should be, being repaired\n    missing in the kernel: :a\n"
    );
    assert_eq!(
        Look::of(true, Vec::new()).to_string(),
        "  kernel: as it should be\n"
    );
}

#[tokio::test]
async fn a_kernel_that_cannot_be_read_is_not_known() {
    let desired = DesiredState::default();
    let found = look(&mut Fake::new(1, 0), &desired).await;
    assert_eq!(found, Look::of(true, Vec::new()));
    let found = look(&mut Fake::new(1, 100), &desired).await;
    assert_eq!(found.agree, None);
    let text = found.to_string();
    assert!(text.starts_with("  kernel: not known: read back"), "{text}");
}
