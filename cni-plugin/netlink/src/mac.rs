//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

/// The text is not six hexadecimal pairs with colons between them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hardware address {0:?} is not of the form 02:00:5e:10:00:00")]
pub struct ParseMacError(String);

impl MacAddr {
    /// Makes six arbitrary bytes a locally administered unicast address
    /// (IEEE 802, bits 1 and 0 of the first octet).
    pub fn local(mut bytes: [u8; 6]) -> Self {
        bytes[0] = (bytes[0] & 0xfc) | 0x02;
        Self(bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let wrong = || ParseMacError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).ok().ok_or_else(wrong)?;
        }
        if parts.next().is_some() {
            Err(wrong())
        } else {
            Ok(Self(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mac = MacAddr::local([0xff, 1, 2, 3, 4, 5]);
        assert_eq!(mac.to_string(), "fe:01:02:03:04:05");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for bad in [
            "",
            "1:2:3:4:5:6",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "0g:00:00:00:00:00",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }
}
