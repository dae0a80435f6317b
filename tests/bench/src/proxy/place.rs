//! A node with a client and a server beside it, and an API server's stand-in on it.
//!
//! The server answers at every endpoint's address, so that whatever a proxy picks is real.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::{Netns, connect};

use super::world::{ENDPOINTS, NODE_IP, TARGET, World};

/// Where the stand-in listens on the node.
pub(super) const API: &str = "127.0.0.1:8001";
/// Longer than any local round trip; who is not answered by then is not served.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Where a proxy works.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) node: Netns,
    pub(super) client: Netns,
    _server: Netns,
    pub(super) api: FakeApi,
    pub(super) world: World,
    dir: tempfile::TempDir,
}

impl Place {
    pub(super) fn new(world: World) -> Result<Self> {
        let [node, client, server] = ["node", "client", "server"].map(Netns::new);
        node.ip("link add uplink type veth peer name far");
        node.ip(&format!("addr add {NODE_IP}/24 dev uplink"));
        node.ip("link set far up");
        node.ip("link set uplink up");
        // What nobody translates or refuses leaves for nowhere.
        node.ip("neigh add 172.30.0.1 lladdr 02:00:00:00:00:01 dev uplink nud permanent");
        node.ip("route add default via 172.30.0.1");
        node.sysctl("ipv4/ip_forward", "1");
        // Who is not served yet is told so each time, and not once a second.
        node.sysctl("ipv4/icmp_ratemask", "0");
        connect(
            &node,
            "c",
            "169.254.1.1/30",
            &client,
            "eth0",
            "169.254.1.2/30",
        );
        client.ip("addr add 10.200.0.2/32 dev lo");
        client.ip("route add default via 169.254.1.1 src 10.200.0.2");
        node.ip("route add 10.200.0.2/32 via 169.254.1.2");
        connect(
            &node,
            "s",
            "169.254.2.1/30",
            &server,
            "eth0",
            "169.254.2.2/30",
        );
        node.ip(&format!("route add {ENDPOINTS} via 169.254.2.2"));
        server.ip(&format!("route add local {ENDPOINTS} dev lo"));
        server.ip("route add default via 169.254.2.1");
        let listener = server.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, TARGET)))?;
        // It lives as long as the process, as the stand-in does.
        std::thread::spawn(move || listener.incoming().flatten().for_each(greet));
        let api = FakeApi::start(&node, API.parse()?, None);
        world.fill(&api);
        let dir = seaway_testbed::temporary("proxy-bench");
        Ok(Self {
            node,
            client,
            _server: server,
            api,
            world,
            dir: dir.context("make a folder")?,
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How often the node's rules say this, as other programs than a proxy see them.
    pub(super) fn count(&self, command: &[&str], word: &str) -> Result<usize> {
        let output = self.node.run(command);
        anyhow::ensure!(
            output.status.success(),
            "{}: {}",
            command.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.matches(word).count())
    }
}

/// Tells a client which address it has been led to.
fn greet(mut client: TcpStream) {
    let Ok(SocketAddr::V4(own)) = client.local_addr() else {
        return;
    };
    // A client that has gone away is not this server's business.
    client.write_all(&own.ip().octets()).ok();
}

/// A connection of the calling thread's namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// From the call of connect(2) to its return.
    pub(super) took: Duration,
    /// Who answered.
    pub(super) endpoint: Ipv4Addr,
}

/// Connects to a Service, within `patience`.
pub(super) fn ask(address: (Ipv4Addr, u16), patience: Duration) -> io::Result<Answer> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address.into(), patience)?;
    let took = started.elapsed();
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut endpoint = [0; 4];
    stream.read_exact(&mut endpoint)?;
    Ok(Answer {
        took,
        endpoint: endpoint.into(),
    })
}
