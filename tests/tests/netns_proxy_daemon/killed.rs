//! The daemon killed at every write of a sync, and left dead, under load.
//!
//! Each of the two syncs has some hundred writes in both families: sets that come and go,
//! tables, a sysctl with the file that remembers it, and flows of UDP that are forgotten, also
//! those of a Service that was deleted while no daemon lived.
//! The oracle is iptables, ipset, conntrack, and clients of endpoints that stay: on the node
//! itself, and in a pod.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::{require_root, short_or_long, strace_is_missing};

use crate::load::{Span, failures, pause_until};

#[path = "killed/flows.rs"]
mod flows;
#[path = "killed/mortal.rs"]
mod mortal;
#[path = "killed/points.rs"]
mod points;
#[path = "killed/states.rs"]
mod states;
#[path = "killed/trace.rs"]
mod trace;
#[path = "killed/trial.rs"]
mod trial;

use flows::MOVED;
use mortal::{EACH_PER_SECOND, Mortal};
use points::{Point, few, many, writes};
use states::STICKY;
use trial::Trial;

/// What a machine manages that is busy with the kills beside it, of twice [`EACH_PER_SECOND`]:
/// new connections a second from the node and a pod together.
const LEAST: u64 = 60;

/// What is tried by which of several nodes, where there is much.
#[derive(Clone, Copy)]
struct Share {
    part: usize,
    of: usize,
}

impl Share {
    /// All that this node tries; with little time a few of each kind, in turns that begin with
    /// `first`.
    fn choose(self, points: &[Point], first: usize) -> Vec<Point> {
        if short_or_long(true, false) {
            return few(points, first);
        }
        let all = many(points).into_iter();
        all.skip(self.part).step_by(self.of).collect()
    }
}

/// Ends in state 1, and gives what that is.
fn killed_from_nothing(mortal: &Mortal, share: Share) -> Vec<String> {
    mortal.change(1);
    let points = mortal.trace(1);
    let wanted = mortal.ours();
    // Sets, two tables in each family, the sysctl and its file.
    assert!(writes(&points) >= 2 * STICKY + 2 * 2 + 2, "{points:#?}");
    assert_eq!(files(&points), 2, "{points:#?}");
    for point in &share.choose(&points, 1) {
        mortal.node.cleanup();
        mortal.assert_is(&mortal.ours(), &[], "cleaned up");
        let killed = mortal.kill_at(1, point);
        assert!(killed, "{} {point}", mortal.flavour);
        let at = format!("{point}, from nothing");
        mortal.assert_is(&mortal.settle(1), &wanted, &at);
    }
    wanted
}

fn files(points: &[Point]) -> usize {
    points.iter().filter(|point| point.is_file()).count()
}

/// Where each of the two syncs can be killed, and what it comes to.
fn both_ways(mortal: &Mortal) -> [(Vec<Point>, Vec<String>); 2] {
    let ways = [0, 1].map(|state| {
        let staying = mortal.send(state);
        mortal.change(state);
        let points = mortal.trace(state);
        let flavour = mortal.flavour;
        assert_eq!(mortal.stale(state), [""; 0], "{flavour}");
        assert_eq!(mortal.staying(), staying, "{flavour}");
        let flows = points.iter().filter(|point| point.is_flow()).count();
        let writes = writes(&points);
        eprintln!("{flavour}: {writes} writes to state {state}, {flows} of them for flows");
        // Those of one thread; the families may be two threads' work.
        assert!(writes > 50 && flows > 10, "{points:#?}");
        assert_eq!(files(&points), 2, "{points:#?}");
        (points, mortal.ours())
    });
    assert_ne!(ways[0].1, ways[1].1);
    ways
}

/// Each kill in turn: from nothing, then from one state to the other and back.
fn killed_everywhere(flavour: &'static str, share: Share) {
    let mortal = Mortal::new(flavour);
    let second = killed_from_nothing(&mortal, share);
    flows::let_last(&mortal.node.netns);
    let [(to_first, first), (to_second, again)] = both_ways(&mortal);
    mortal.assert_is(&again, &second, "back again");
    let chosen = [share.choose(&to_first, 0), share.choose(&to_second, 2)];
    let dead = short_or_long(Duration::from_millis(100), Duration::from_mins(1));
    let mut trial = Trial::new(&mortal, [first, second]);
    for k in 0..chosen[0].len().max(chosen[1].len()) {
        for (state, points) in chosen.iter().enumerate() {
            // Both ways of a minute each are more than there is time for.
            let dead = if k % 2 == state { dead } else { Duration::ZERO };
            match points.get(k) {
                Some(point) => trial.die(point, state, dead),
                None => trial.go(state),
            }
        }
    }
    // And whenever it comes, its questions included.
    for k in 0..6 {
        let time = Duration::from_millis(30) * k;
        trial.die_after(time, usize::from(k % 2 == 1));
    }
    trial.end();
}

/// Restarted, then left dead while the API goes on, then started.
fn left_dead(time: Duration) {
    let mortal = Mortal::new("nft");
    mortal.change(1);
    let second = mortal.settle(1);
    flows::let_last(&mortal.node.netns);
    mortal.change(0);
    let first = mortal.settle(0);
    let loads = mortal.load();
    let staying = mortal.send(1);
    // Flows that the next state makes stale are as good as any other in this one.
    let well = |at: &str| {
        let failures = failures(&loads);
        assert!(failures.is_empty(), "{at}: {failures:#?}");
        assert_eq!(mortal.stale(1).len(), MOVED, "{at}");
    };
    for end in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        let daemon = mortal.start(0);
        daemon.wait_said(&["Programmed all Services"]);
        daemon.end(end);
        mortal.assert_is(&mortal.ours(), &first, end.as_str());
        well(end.as_str());
    }
    let (span, until) = (Span::begin(&loads), Instant::now() + time);
    mortal.change(1);
    pause_until(until);
    let rates = span.per_second(&loads);
    eprintln!("dead for {time:?}, answered {rates:?} a second of {EACH_PER_SECOND}");
    assert!(rates.iter().sum::<u64>() >= LEAST, "{rates:?}");
    assert!(rates.iter().all(|rate| *rate > 0), "{rates:?}");
    well("dead");
    mortal.assert_is(&mortal.ours(), &first, "dead");
    mortal.assert_is(&mortal.settle(1), &second, "alive again");
    assert_eq!(mortal.stale(1), [""; 0], "alive again");
    assert_eq!(mortal.staying(), staying, "alive again");
    for load in loads {
        load.end();
    }
}

/// The minute is used for some of the kills, on nodes of their own. With `SEAWAY_LONG` each
/// k-th write is tried up to the fiftieth and some beyond, one way of which the node is left
/// dead for a minute each; two nodes of each flavour share the half of an hour that it takes.
#[test]
fn case_246_killed_at_every_write_or_left_dead_for_a_minute_nobody_notices() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let of = short_or_long(1, 2);
    std::thread::scope(|scope| {
        for flavour in ["nft", "legacy"] {
            for part in 0..of {
                scope.spawn(move || killed_everywhere(flavour, Share { part, of }));
            }
        }
        left_dead(Duration::from_mins(1));
    });
}
