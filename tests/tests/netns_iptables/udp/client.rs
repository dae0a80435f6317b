//! A client of UDP that never changes its port.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use seaway_testbed::{Netns, uninterrupted};

const TRIES: usize = 3;

pub(super) struct Client(pub(super) UdpSocket);

impl Client {
    pub(super) fn new(from: &Netns, to: &str) -> Self {
        let any = if to.starts_with('[') {
            "[::]:0"
        } else {
            "0.0.0.0:0"
        };
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(any)?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            socket.connect(to)?;
            Ok(socket)
        };
        Self(from.enter(open).unwrap())
    }

    /// Who answers, or why nobody does. The kernel may lose a datagram while a link
    /// comes up; one that is black-holed loses all.
    pub(super) fn ask(&self) -> String {
        let answer = (0..TRIES).map(|_| self.try_ask());
        let silence = io::ErrorKind::WouldBlock.to_string();
        let mut answer = answer.skip_while(|answer| *answer == silence);
        answer.next().unwrap_or(silence.clone())
    }

    fn try_ask(&self) -> String {
        // An error of an earlier datagram is not of this one.
        self.0.take_error().unwrap();
        let asked = || {
            self.0.send(b"who?")?;
            let mut room = [0; 100];
            let length = uninterrupted(|| self.0.recv(&mut room))?;
            Ok(String::from_utf8_lossy(&room[..length]).into_owned())
        };
        let asked: io::Result<String> = asked();
        match asked {
            Ok(answer) => answer.split(' ').next().unwrap().to_owned(),
            Err(error) => error.kind().to_string(),
        }
    }
}

/// What each comes to, all at once, since silence takes its time.
pub(super) fn ask_all(clients: &[Client]) -> Vec<String> {
    std::thread::scope(|scope| {
        let mut asking = Vec::new();
        for client in clients {
            asking.push(scope.spawn(move || client.ask()));
        }
        let answers = asking.into_iter().map(|thread| thread.join().unwrap());
        answers.collect()
    })
}

#[track_caller]
pub(super) fn all_answered(clients: &[Client], by: &str) {
    assert_eq!(ask_all(clients), vec![by; clients.len()]);
}

#[track_caller]
pub(super) fn none_answered(clients: &[Client], by: &str) {
    let answers = ask_all(clients);
    assert!(answers.iter().all(|answer| answer != by), "{answers:?}");
}
