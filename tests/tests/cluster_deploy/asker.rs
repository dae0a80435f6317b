//! Who asks a Service all the time, on every node.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::cluster::{Cluster, until};

/// A new connection each time; none may fail. Ends by itself when it is forgotten.
const LOOP: &str = "\
n=0
while [ ! -e \"$2\" ] && [ $n -lt 3000 ]; do
    curl -sSf --max-time 2 -o /dev/null \"http://$1/hostname\" || exit 1
    n=$((n+1))
    echo $n
    sleep 0.05
done";
/// Fewer would not have met the moment.
const ENOUGH: usize = 20;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Askers {
    askers: Vec<(Child, PathBuf)>,
    stop: PathBuf,
}

impl Askers {
    /// Starts them, and waits for answers.
    pub(crate) fn start(cluster: &Cluster, ip: &str) -> Result<Self> {
        let stop = cluster.dir().join("askers-stop");
        let mut askers = Vec::new();
        for node in cluster.nodes() {
            let path = cluster.dir().join(format!("asker-{}", node.name()));
            let file = File::create(&path).context("make an asker's file")?;
            let mut shell = node.command("sh");
            shell.args(["-c", LOOP, "sh", ip]).arg(&stop);
            shell.stdout(file).stderr(Stdio::piped());
            askers.push((shell.spawn().context("start sh")?, path));
        }
        let mut started = Self { askers, stop };
        started.go_on()?;
        Ok(started)
    }

    /// Waits until each has been answered for some time more.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        for (child, path) in &mut self.askers {
            let enough = answers(path)? + ENOUGH;
            until("the Service goes on answering", PATIENCE, || {
                let ended = child.try_wait().context("look at sh")?;
                ensure!(ended.is_none(), "a connection has failed: {ended:?}");
                Ok((answers(path)? >= enough).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Ends them; no connection may have failed.
    pub(crate) fn stop(self) -> Result<()> {
        fs::write(&self.stop, "").context("tell the askers to stop")?;
        for (child, _) in self.askers {
            let output = child.wait_with_output().context("wait for sh")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "a connection failed: {said}");
        }
        Ok(())
    }
}

fn answers(path: &Path) -> Result<usize> {
    let text = fs::read_to_string(path).context("read an asker's file")?;
    Ok(text.lines().count())
}
