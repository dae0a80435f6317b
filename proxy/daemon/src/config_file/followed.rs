//! The file of a running daemon, which notices that it says something else.
//!
//! By looking at what is in it: a file in a volume of a ConfigMap is replaced by way of its
//! folder, an editor writes a new one, and either takes more than one step.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::warn;

use super::{ConfigFile, read};

/// kubelet takes up to a minute until a ConfigMap's volume is new.
const LOOK: Duration = Duration::from_secs(5);

/// A file, and what was taken from it.
#[derive(Debug)]
pub(crate) struct Followed {
    file: PathBuf,
    taken: ConfigFile,
    /// Why it cannot be taken as it is now.
    told: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It says the same, maybe in other words.
    Same,
    Other,
    /// It is not there, or wrong.
    Bad(String),
}

impl Followed {
    pub(crate) fn new(file: PathBuf, taken: ConfigFile) -> Self {
        let told = None;
        Self { file, taken, told }
    }

    /// Returns the file when it says something else. One that cannot be taken is told once, and
    /// changes nothing: a daemon that ends for it would not come back.
    pub(crate) async fn other(mut self) -> PathBuf {
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(tokio::fs::read_to_string(&self.file).await) {
                Look::Other => return self.file,
                Look::Same => self.told = None,
                Look::Bad(error) => self.tell(error),
            }
        }
    }

    fn look(&self, text: io::Result<String>) -> Look {
        let text = match text {
            Ok(text) => text,
            Err(error) => return Look::Bad(error.to_string()),
        };
        match read(Path::new(&self.file), &text) {
            Ok((now, _)) if now == self.taken => Look::Same,
            Ok(_) => Look::Other,
            Err(error) => Look::Bad(error.to_string()),
        }
    }

    fn tell(&mut self, error: String) {
        if self.told.as_ref() != Some(&error) {
            let file = self.file.display();
            warn!(%file, error, "Cannot take the new configuration, going on with the old one");
            self.told = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    fn followed(rest: &str) -> Followed {
        let file = PathBuf::from("kube-proxy.conf");
        let (taken, _) = read(&file, &format!("{HEAD}{rest}")).unwrap();
        Followed::new(file, taken)
    }

    #[test]
    fn what_it_says_counts_and_not_how() {
        let followed = followed("oomScoreAdj: -5\n");
        for (rest, look) in [
            ("oomScoreAdj: -5\n", Look::Same),
            ("# a word\noomScoreAdj:  -5\n", Look::Same),
            ("oomScoreAdj: -6\n", Look::Other),
            ("", Look::Other),
        ] {
            assert_eq!(followed.look(Ok(format!("{HEAD}{rest}"))), look, "{rest}");
        }
    }

    #[test]
    fn half_a_file_and_none_change_nothing() {
        let followed = followed("oomScoreAdj: -5\n");
        let none = io::Error::from(io::ErrorKind::NotFound);
        for text in [Ok(String::new()), Ok(HEAD[..20].to_owned()), Err(none)] {
            let look = followed.look(text);
            assert!(matches!(look, Look::Bad(_)), "{look:?}");
        }
        let Look::Bad(error) = followed.look(Ok(format!("{HEAD}oomScoreAdj: much\n"))) else {
            panic!("it is wrong");
        };
        let named = "kube-proxy.conf: oomScoreAdj: \"much\": ";
        assert!(error.starts_with(named), "{error}");
    }
}
