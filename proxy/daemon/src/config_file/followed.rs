//! The file of a running daemon, which notices that it says something else.
//!
//! By looking at what is in it: a file in a volume of a ConfigMap is replaced by way of its
//! folder, an editor writes a new one, and either takes more than one step.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::Kubeconfig;
use tracing::warn;

use super::{ConfigFile, read};
use crate::args::RunArgs;

/// kubelet takes up to a minute until a ConfigMap's volume is new.
const LOOK: Duration = Duration::from_secs(5);

/// A file, and what was taken from it.
#[derive(Debug)]
pub(crate) struct Followed {
    file: PathBuf,
    taken: ConfigFile,
    /// What the file is laid under.
    flags: RunArgs,
    host_name: String,
    /// What it said at the last look: half a file may mean something, too.
    seen: Option<ConfigFile>,
    /// Why it cannot be taken as it is now.
    told: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It says the same, maybe in other words.
    Same,
    /// It says something else, and did not a moment ago.
    Moving,
    Other,
    /// It is not there, or wrong.
    Bad(String),
}

impl Followed {
    pub(crate) fn new(file: PathBuf, taken: ConfigFile, flags: RunArgs, host_name: &str) -> Self {
        Self {
            file,
            taken,
            flags,
            host_name: host_name.to_owned(),
            seen: None,
            told: None,
        }
    }

    /// Returns the file when it says something else, at two looks. One that cannot be taken is
    /// told once, and changes nothing: a daemon that ends for it would not come back.
    pub(crate) async fn other(mut self) -> PathBuf {
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(tokio::fs::read_to_string(&self.file).await) {
                Look::Other => return self.file,
                Look::Moving => {}
                Look::Same => self.told = None,
                Look::Bad(error) => self.tell(error),
            }
        }
    }

    fn look(&mut self, text: io::Result<String>) -> Look {
        let before = self.seen.take();
        let now = match self.read(text) {
            Ok(now) => now,
            Err(error) => return Look::Bad(format!("{error:#}")),
        };
        if now == self.taken {
            return Look::Same;
        }
        let is_settled = before.as_ref() == Some(&now);
        let now = self.seen.insert(now).clone();
        if !is_settled {
            return Look::Moving;
        }
        match self.try_on(now) {
            Ok(()) => Look::Other,
            Err(error) => Look::Bad(format!("{error:#}")),
        }
    }

    fn read(&self, text: io::Result<String>) -> anyhow::Result<ConfigFile> {
        let (file, _) = read(&self.file, &text?)?;
        Ok(file)
    }

    /// What may be right by itself has to fit the flags, and what it names has to be there.
    fn try_on(&self, now: ConfigFile) -> anyhow::Result<()> {
        let mut args = self.flags.clone();
        args.lay_over(now);
        args.config(&self.host_name)?;
        if let Some(path) = &args.kubeconfig {
            Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
        }
        Ok(())
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
    use crate::args::{Cli, Verb};

    const HEAD: &str =
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    fn followed(rest: &str) -> Followed {
        let file = PathBuf::from("kube-proxy.conf");
        let (taken, _) = read(&file, &format!("{HEAD}{rest}")).unwrap();
        let words = ["seaway-proxy", "run", "--pod-network", "off"];
        let Verb::Run(flags) = Cli::read(words.map(Into::into)).unwrap().verb else {
            panic!("not run")
        };
        Followed::new(file, taken, *flags, "host")
    }

    /// At the second of two looks.
    fn look(followed: &mut Followed, rest: &str) -> Look {
        followed.look(Ok(format!("{HEAD}{rest}")));
        followed.look(Ok(format!("{HEAD}{rest}")))
    }

    #[test]
    fn what_it_says_counts_and_not_how() {
        let mut followed = followed("oomScoreAdj: -5\n");
        for (rest, expected) in [
            ("oomScoreAdj: -5\n", Look::Same),
            ("# a word\noomScoreAdj:  -5\n", Look::Same),
            ("oomScoreAdj: -6\n", Look::Other),
            ("", Look::Other),
        ] {
            assert_eq!(look(&mut followed, rest), expected, "{rest}");
        }
    }

    #[test]
    fn half_a_file_and_none_change_nothing() {
        let mut followed = followed("oomScoreAdj: -52\n");
        let none = io::Error::from(io::ErrorKind::NotFound);
        for text in [Ok(String::new()), Ok(HEAD[..20].to_owned()), Err(none)] {
            let look = followed.look(text);
            assert!(matches!(look, Look::Bad(_)), "{look:?}");
        }
        // Half a file that means something is another one a moment later.
        for rest in ["oomScoreAdj: -5", "oomScoreAdj: -53"] {
            assert_eq!(followed.look(Ok(format!("{HEAD}{rest}"))), Look::Moving);
        }
    }

    #[test]
    fn what_cannot_be_taken_is_told_with_file_field_and_value() {
        let mut followed = followed("oomScoreAdj: -5\n");
        let Look::Bad(error) = look(&mut followed, "oomScoreAdj: much\n") else {
            panic!("it is wrong");
        };
        let named = "kube-proxy.conf: oomScoreAdj: \"much\": ";
        assert!(error.starts_with(named), "{error}");
    }

    #[test]
    fn what_does_not_fit_the_flags_or_names_what_is_not_there_is_not_taken() {
        let mut followed = followed("clusterCIDR: 10.244.0.0/16\n");
        for rest in [
            "detectLocalMode: BridgeInterface\n",
            "iptables: { minSyncPeriod: 40s }\n",
            "clientConnection: { kubeconfig: /nowhere/kube.conf }\n",
        ] {
            for _ in 0..2 {
                let look = look(&mut followed, rest);
                assert!(matches!(look, Look::Bad(_)), "{rest}: {look:?}");
            }
        }
        assert_eq!(look(&mut followed, "mode: iptables\n"), Look::Other);
    }
}
