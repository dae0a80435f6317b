//! The HTTPS API's certificate, and whose certificates it takes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or is not PEM.
    #[error("read {what} from {path}")]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file holds no certificate.
    #[error("{path} holds no certificate")]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// A certificate of the client CA is none.
    #[error("take the certificates of {path} as authorities")]
    Authority {
        /// Where it is from.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// The client CA cannot be used.
    #[error("verify clients by the client CA")]
    Verifier(#[source] VerifierBuilderError),
    /// Certificate and key do not fit or are not usable.
    #[error("use the serving certificate and its key")]
    Serving(#[source] rustls::Error),
    /// The self-signed certificate cannot be made.
    #[error("make a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
}

/// A certificate chain and its key.
#[derive(Debug)]
pub struct ServingCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ServingCertificate {
    /// Reads both from PEM files.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
            what: "a private key",
            path: key.to_owned(),
            source,
        })?;
        Ok(Self { chain, key })
    }

    /// Made for this start only; the API server does not check it unless told to.
    pub fn self_signed(node_name: &str, ips: &[IpAddr]) -> Result<Self, TlsError> {
        let names = ips
            .iter()
            .map(IpAddr::to_string)
            .chain([node_name.to_owned()]);
        let made = rcgen::generate_simple_self_signed(names.collect::<Vec<_>>())
            .map_err(TlsError::SelfSigned)?;
        let key = made.signing_key.serialize_der();
        Ok(Self {
            chain: vec![made.cert.der().clone()],
            key: PrivateKeyDer::Pkcs8(key.into()),
        })
    }
}

/// Requires of every client a certificate that an authority of `client_ca` has signed.
pub fn acceptor(serving: ServingCertificate, client_ca: &Path) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca)? {
        roots.add(authority).map_err(|source| TlsError::Authority {
            path: client_ca.to_owned(),
            source,
        })?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(TlsError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Serving)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(serving.chain, serving.key)
        .map_err(TlsError::Serving)?;
    // Upgrades (exec) exist in HTTP/1.1 only.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::File {
        what: "certificates",
        path: path.to_owned(),
        source,
    };
    let all = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(unreadable)?;
    if all.is_empty() {
        return Err(TlsError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(all)
}
