//! Who calls, as the client certificate says: CN is the user, every O a group.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Common name.
    pub user: String,
    /// Organisations.
    pub groups: Vec<String>,
}

/// A certificate that TLS has accepted names no caller.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is none.
    #[error("the client sent no certificate")]
    Missing,
    /// It is not X.509.
    #[error("read the client's certificate")]
    Malformed(#[source] x509_parser::nom::Err<x509_parser::error::X509Error>),
    /// Kubernetes takes the user's name from it.
    #[error("the client's certificate has no common name")]
    Nameless,
}

impl Identity {
    /// Of the first certificate, the client's own.
    pub fn from_certificates(chain: &[CertificateDer<'_>]) -> Result<Self, IdentityError> {
        let own = chain.first().ok_or(IdentityError::Missing)?;
        let (_rest, certificate) =
            X509Certificate::from_der(own).map_err(IdentityError::Malformed)?;
        let subject = certificate.subject();
        let user = subject
            .iter_common_name()
            .find_map(|name| name.as_str().ok())
            .filter(|name| !name.is_empty())
            .ok_or(IdentityError::Nameless)?;
        let groups = subject
            .iter_organization()
            .filter_map(|name| name.as_str().ok());
        Ok(Self {
            user: user.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        })
    }
}
