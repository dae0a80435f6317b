//! What many endpoints and Services come to.

use crate::checks;

#[test]
fn o10_each_of_six_thousand_endpoints_has_its_share() {
    let shares = checks::shares(6000);
    assert_eq!(shares.len(), 6000);
    for (endpoint, share) in shares {
        let off = share * 6000.0;
        assert!(
            (0.99..1.01).contains(&off),
            "{endpoint}: {off} of its share"
        );
    }
}

#[test]
fn t2_a_local_endpoint_that_goes_is_a_few_lines_among_five_thousand_services() {
    let count = checks::written_for_one_change(5000);
    assert!((1..=40).contains(&count), "{count} rules");
}
