//! Kubernetes quantities as numbers.
//!
//! Grammar: Kubernetes API, `resource.Quantity`: a signed decimal with an optional
//! suffix `n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`, or an exponent `e3`.
//! Kept as whole nano-units, which is as fine as the API itself keeps them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const NANO: i128 = 1_000_000_000;

/// The text is not a quantity, or one too large to matter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct QuantityError(String);

/// Whole units, rounded up: bytes, pods.
pub fn bytes(quantity: &Quantity) -> Result<u64, QuantityError> {
    scaled(quantity, NANO)
}

/// Thousandths, rounded up: CPU.
pub fn millis(quantity: &Quantity) -> Result<u64, QuantityError> {
    scaled(quantity, NANO / 1000)
}

/// `quantity / divisor`, rounded up: what `resourceFieldRef` shows.
pub fn divided(quantity: &Quantity, divisor: &Quantity) -> Result<u64, QuantityError> {
    match nanos(divisor)? {
        // An unset divisor arrives as "0" and means 1.
        0 => bytes(quantity),
        unit => scaled(quantity, unit),
    }
}

/// Whether `amount` is more than `limit`.
pub fn exceeds(amount: &Quantity, limit: &Quantity) -> Result<bool, QuantityError> {
    Ok(nanos(amount)? > nanos(limit)?)
}

fn scaled(quantity: &Quantity, unit: i128) -> Result<u64, QuantityError> {
    let nanos = nanos(quantity)?;
    let whole = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    u64::try_from(whole).map_err(|_out_of_range| QuantityError(quantity.0.clone()))
}

fn nanos(quantity: &Quantity) -> Result<i128, QuantityError> {
    parse(quantity.0.trim()).ok_or_else(|| QuantityError(quantity.0.clone()))
}

fn parse(text: &str) -> Option<i128> {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor = factor(suffix)?;
    let (negative, digits) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = parse_digits(whole)?.checked_mul(factor)?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fine = parse_digits(fraction)?.checked_mul(factor)?;
    value = value.checked_add(fine.div_euclid(scale) + i128::from(fine.rem_euclid(scale) != 0))?;
    Some(if negative { -value } else { value })
}

fn parse_digits(text: &str) -> Option<i128> {
    if text.is_empty() {
        return Some(0);
    }
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// How many nano-units one unit of `suffix` is.
fn factor(suffix: &str) -> Option<i128> {
    let factor = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => NANO,
        "k" => NANO * 1_000,
        "M" => NANO * 1_000_000,
        "G" => NANO * 1_000_000_000,
        "T" => NANO * 1_000_000_000_000,
        "P" => NANO * 1_000_000_000_000_000,
        "E" => NANO * 1_000_000_000_000_000_000,
        "Ki" => NANO << 10,
        "Mi" => NANO << 20,
        "Gi" => NANO << 30,
        "Ti" => NANO << 40,
        "Pi" => NANO << 50,
        "Ei" => NANO << 60,
        other => return exponent(other),
    };
    Some(factor)
}

fn exponent(suffix: &str) -> Option<i128> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    10_i128.checked_pow(u32::try_from(power.checked_add(9)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity(text.into())
    }

    #[test]
    fn reads_every_suffix() {
        for (text, want) in [
            ("0", 0),
            ("128", 128),
            ("1k", 1_000),
            ("1Ki", 1_024),
            ("1.5Gi", 1_610_612_736),
            ("2e3", 2_000),
            ("1E", 1_000_000_000_000_000_000),
            ("100m", 1),
            ("1500m", 2),
            (".5", 1),
            ("+4Mi", 4 << 20),
        ] {
            assert_eq!(bytes(&q(text)), Ok(want), "{text}");
        }
    }

    #[test]
    fn cpu_is_in_thousandths_rounded_up() {
        for (text, want) in [
            ("1", 1000),
            ("250m", 250),
            ("0.1", 100),
            ("1u", 1),
            ("2.5", 2500),
        ] {
            assert_eq!(millis(&q(text)), Ok(want), "{text}");
        }
    }

    #[test]
    fn divides_as_the_downward_api_does() {
        assert_eq!(divided(&q("250m"), &q("1m")), Ok(250));
        assert_eq!(divided(&q("250m"), &q("1")), Ok(1));
        assert_eq!(divided(&q("32Mi"), &q("1Mi")), Ok(32));
        assert_eq!(divided(&q("32Mi"), &q("0")), Ok(32 << 20));
    }

    #[test]
    fn refuses_what_is_not_a_quantity() {
        for text in [
            "", "x", "1x", "1.2.3", "-", "1 Mi", "--1", "1e", "1Kib", "-5", "1e40",
        ] {
            assert!(bytes(&q(text)).is_err(), "{text}");
        }
    }
}
