//! The API server's client, without a need for what it does not use.

use kube::{Client, Config};

/// A client as [`Client::try_from`] makes it, except that the system's CA certificates are
/// loaded only when they are what the server is to be verified by.
///
/// A node, or an image with nothing but our program in it, may have none of them; and kube
/// fails without them even when the server speaks plain HTTP.
///
/// # Errors
/// Those of kube: a client certificate, a CA or a token that cannot be used.
pub fn api_client(mut config: Config) -> Result<Client, kube::Error> {
    if config.root_cert.is_none() && !verifies_servers(&config) {
        config.root_cert = Some(Vec::new());
    }
    Client::try_from(config)
}

fn verifies_servers(config: &Config) -> bool {
    config.cluster_url.scheme_str() == Some("https") && !config.accept_invalid_certs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_certificates_are_for_servers_that_are_verified() {
        for (url, insecure, want) in [
            ("http://127.0.0.1:8001", false, false),
            ("https://127.0.0.1:6443", true, false),
            ("https://127.0.0.1:6443", false, true),
        ] {
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = insecure;
            assert_eq!(verifies_servers(&config), want, "{url} {insecure}");
        }
    }
}
