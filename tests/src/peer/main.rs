//! `seaway-peer`: asks or serves from a process of its own, which can join a cgroup.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seaway_testbed::peer::{self, Dialer, Held, Protocol, Server};

const USAGE: &str = "usage: seaway-peer ask tcp|udp|udp-unconnected ADDRESS [TIMES]
       seaway-peer serve tcp|udp ADDRESS NAME
       seaway-peer dial ADDRESS MILLISECONDS
       seaway-peer hold ADDRESS

ask prints one line per answer: the server's name, the client's address as the server sees
it, the server's address as the client sees it. It ends with 1 at the first failure, whose
kind it prints to standard error. serve runs until its standard input is closed. So does dial:
every so many milliseconds it opens a connection and asks GET /hostname, and it keeps one open
and asks again on that. It prints a line for each failure, and the counts every second. hold
opens a connection and prints how it was greeted; for each line of its standard input it asks
on that connection and prints one, too.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match *words.as_slice() {
        ["ask", protocol, address] => ask(protocol, address, "1"),
        ["ask", protocol, address, times] => ask(protocol, address, times),
        ["dial", address, every] => dial(address, every),
        ["hold", address] => hold(address),
        ["serve", protocol, address, name] => serve(protocol, address, name),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn ask(protocol: &str, address: &str, times: &str) -> Result<(), String> {
    let protocol: Protocol = protocol.parse()?;
    let address = parse_address(address)?;
    let times: u32 = times
        .parse()
        .map_err(|error| format!("times {times:?}: {error}"))?;
    let mut out = std::io::stdout();
    for _ in 0..times {
        let answer = peer::ask(protocol, address, peer::PATIENCE)
            .map_err(|error| format!("{:?}: {error}", error.kind()))?;
        writeln!(out, "{answer}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn serve(protocol: &str, address: &str, name: &str) -> Result<(), String> {
    let server = Server::start(protocol.parse()?, parse_address(address)?, name)
        .map_err(|error| format!("serve {address}: {error}"))?;
    println_flushed(&server.address().to_string())?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
        .map_err(|error| format!("wait for the end of standard input: {error}"))?;
    Ok(())
}

fn dial(address: &str, every: &str) -> Result<(), String> {
    let every = every
        .parse()
        .map_err(|error| format!("milliseconds {every:?}: {error}"))?;
    let dialer = Dialer {
        address: parse_address(address)?,
        every: Duration::from_millis(every),
        // SYNs go after 0, 1 and 3 s: two may be lost while a path changes.
        patience: Duration::from_secs(5),
    };
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
            stopped.store(true, Ordering::Relaxed);
        });
        let stop = || stopped.load(Ordering::Relaxed);
        // Who reads it sees a broken pipe first; the counts are not needed then.
        dialer.run(stop, |line| drop(println_flushed(line)));
    });
    Ok(())
}

fn hold(address: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{:?}: {error}", error.kind());
    let mut held = Held::open(parse_address(address)?, peer::PATIENCE).map_err(failed)?;
    println_flushed(&held.answer.to_string())?;
    for line in std::io::stdin().lines() {
        line.map_err(failed)?;
        held.check().map_err(failed)?;
        println_flushed("held")?;
    }
    Ok(())
}

fn println_flushed(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

fn parse_address(word: &str) -> Result<SocketAddr, String> {
    word.parse()
        .map_err(|error| format!("address {word:?}: {error}"))
}
