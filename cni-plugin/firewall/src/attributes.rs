//! Netlink attributes as nf_tables wants them: numbers in network byte order.

/// `NLA_F_NESTED`, include/uapi/linux/netlink.h.
const NESTED: u16 = 1 << 15;
const HEADER: usize = 4;

/// A list of attributes under construction.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// The messages of nf_tables begin with `struct nfgenmsg`: family, version
    /// 0, resource id in network byte order.
    pub(crate) fn after_header(family: u8, resource: u16) -> Self {
        let [high, low] = resource.to_be_bytes();
        Self(vec![family, 0, high, low])
    }

    pub(crate) fn bytes(self, kind: u16, value: &[u8]) -> Self {
        self.push(kind, value)
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.push(kind, &bytes)
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.push(kind, &value.to_be_bytes())
    }

    pub(crate) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.push(kind | NESTED, &inner.0)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn push(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER + value.len())
            .expect("our attributes are a few hundred bytes long");
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}
