//! How fast a pod may receive and send.

use seaway_netlink::TokenBucket;

use super::{RUNTIME, lower_case};
use crate::config::{Object, config, optional};
use crate::error::Error;

/// A burst of more than this much time is no limit at all: runtimes send the
/// largest number that they know, for lack of an own one (kubernetes#90838).
const LONGEST_BURST_S: u64 = 1;
/// What is used then: 50 ms, and at least one packet of segmentation offload.
const BURSTS_PER_SECOND: u64 = 20;
const LEAST_BURST: u64 = 64 * 1024;
/// How long a packet may wait, 50 ms, before the sender is told by a loss.
const QUEUES_PER_SECOND: u64 = 20;

/// (what the pod receives, what it sends); rates are bits per second, bursts
/// bits.
pub(super) fn parse(
    all: &Object,
    key: &str,
) -> Result<(Option<TokenBucket>, Option<TokenBucket>), Error> {
    let path = format!("{RUNTIME}.{key}");
    let given: Object = optional(all, key, &path)?.unwrap_or_default();
    let given = lower_case(&given);
    let number = |key: &str| -> Result<u64, Error> {
        Ok(optional(&given, key, &format!("{path}.{key}"))?.unwrap_or(0))
    };
    let direction = |name: &str| -> Result<Option<TokenBucket>, Error> {
        let rate = number(&format!("{name}rate"))?;
        let burst = number(&format!("{name}burst"))?;
        match rate {
            0 => Ok(None),
            1..8 => Err(config(
                &path,
                format!("{name}Rate {rate} is less than 8 bits/s"),
            )),
            _ => Ok(Some(bucket(rate / 8, burst / 8))),
        }
    };
    Ok((direction("ingress")?, direction("egress")?))
}

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    let burst = if burst == 0 || burst > rate.saturating_mul(LONGEST_BURST_S) {
        rate / BURSTS_PER_SECOND
    } else {
        burst
    };
    let fit = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let burst = burst.max(LEAST_BURST);
    TokenBucket {
        rate,
        burst: fit(burst),
        limit: fit(burst.saturating_add(rate / QUEUES_PER_SECOND)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(bandwidth: Value) -> (Option<TokenBucket>, Option<TokenBucket>) {
        let all = Object::from_iter([("bandwidth".to_owned(), bandwidth)]);
        parse(&all, "bandwidth").unwrap()
    }

    #[test]
    fn bursts_that_stand_for_none_are_not_taken_at_their_word() {
        for sentinel in [u64::from(u32::MAX), u64::from(u32::MAX) * 8 - 1, 0] {
            let (ingress, egress) = parsed(json!({
                "IngressRate": 10_000_000, "IngressBurst": sentinel, "EgressRate": 0
            }));
            let bucket = ingress.unwrap();
            assert_eq!((bucket.rate, bucket.burst), (1_250_000, 65536));
            assert_eq!(egress, None);
        }
    }

    #[test]
    fn both_directions_and_spellings() {
        let (ingress, egress) = parsed(json!({
            "ingressRate": 800_000_000, "ingressBurst": 8_000_000,
            "egressRate": 80_000_000_000u64,
        }));
        assert_eq!(ingress.unwrap().burst, 1_000_000);
        assert_eq!(egress.unwrap().rate, 10_000_000_000);
        let all = Object::from_iter([("bandwidth".to_owned(), json!({"egressRate": 7}))]);
        assert_eq!(parse(&all, "bandwidth").unwrap_err().code(), 7);
    }
}
