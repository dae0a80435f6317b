use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn target() -> Target {
    Target {
        address: ip("10.244.1.1"),
        via: ip("172.30.0.12"),
        direct: false,
    }
}

/// A peer whose path works or does not, and a clock.
struct World {
    probes: Probes,
    now: Now,
    sent: Vec<Now>,
}

impl World {
    fn new(targets: &[Target]) -> Self {
        let mut probes = Probes::new(7);
        probes.set_targets(targets, Duration::ZERO);
        Self {
            probes,
            now: Duration::ZERO,
            sent: Vec::new(),
        }
    }

    /// Passes time until `end`, waking only when told to; gives when verdicts changed.
    fn run(&mut self, end: Now, passes: impl Fn(IpAddr, Now) -> bool) -> Vec<(Now, usize)> {
        let mut verdicts = Vec::new();
        for _ in 0..100_000 {
            let at = self.probes.next().unwrap_or(end).max(self.now);
            if at >= end {
                break;
            }
            self.now = at;
            let (due, mut changed) = self.probes.tick(self.now);
            for due in due {
                self.sent.push(self.now);
                if passes(due.address, self.now) {
                    changed |= self.probes.answered(due.address, due.sequence, self.now);
                }
            }
            if changed {
                verdicts.push((self.now, self.probes.direct().len()));
            }
        }
        self.now = end;
        verdicts
    }
}

#[test]
fn three_answers_make_it_direct_within_a_second() {
    let mut world = World::new(&[target()]);
    let verdicts = world.run(SECOND, |_, _| true);
    assert_eq!(verdicts.len(), 1);
    assert_eq!(world.probes.direct(), [target().address].into());
    assert_eq!(world.sent.len(), 3);
    assert_eq!(world.sent[0], Duration::ZERO);
}

#[test]
fn an_attempt_with_one_miss_is_over_and_needs_three_of_three_the_next_time() {
    for lost in 0..3 {
        let mut world = World::new(&[target()]);
        let count = std::cell::Cell::new(0);
        let verdicts = world.run(SECOND + SECOND / 2, |_, _| {
            count.set(count.get() + 1);
            count.get() != lost + 1
        });
        assert_eq!(verdicts, [], "with echo {lost} lost");
        assert_eq!(world.sent.len(), lost + 1);
        assert_eq!(world.probes.misses(), 1);
        let verdicts = world.run(SECOND * 5, |_, _| true);
        assert_eq!(verdicts.len(), 1, "with echo {lost} lost");
        assert_eq!(world.sent.len(), lost + 4);
    }
}

#[test]
fn attempts_in_vain_come_ever_more_slowly_until_every_30_s() {
    let mut world = World::new(&[target()]);
    assert_eq!(world.run(SECOND * 200, |_, _| false), []);
    let pauses: Vec<Duration> = world.sent.windows(2).map(|w| w[1].abs_diff(w[0])).collect();
    for (pause, expect) in pauses.iter().zip([2, 4, 8, 16, 30, 30]) {
        // After the answer's time, and a tenth more or less.
        let expect = SECOND + SECOND * expect;
        assert!(
            *pause > expect * 9 / 10 && *pause < expect * 11 / 10,
            "{pauses:?}"
        );
    }
    assert!(pauses.len() >= 7, "{pauses:?}");
}

#[test]
fn a_path_that_breaks_is_left_within_9_s_and_taken_again_when_it_works() {
    let mut world = World::new(&[target()]);
    world.run(SECOND * 60, |_, _| true);
    let watched = world.sent.len();
    // 3 for the verdict, then one in 5 s.
    assert!((13..=16).contains(&watched), "{watched}");
    let verdicts = world.run(SECOND * 140, |_, now| now >= SECOND * 100);
    let [(left, 0), (taken, 1)] = verdicts[..] else {
        panic!("{verdicts:?}");
    };
    // The next look may be 5.5 s away; two more follow, one second after the other.
    assert!(left > SECOND * 62 && left < SECOND * 69, "{left:?}");
    assert!(taken >= SECOND * 100 && taken < SECOND * 135, "{taken:?}");
}

#[test]
fn what_becomes_of_the_last_eight_decides() {
    // What each echo of a proven path meets, `.` an answer; the place of the last one sent
    // before the path is left, if it is.
    for (fate, left) in [
        ("xxx", Some(3)),
        ("x.xx", Some(4)),
        (".....x.x.x", Some(10)),
        ("x..x...x", Some(8)),
        ("xx......x", None),
        ("x...x....x...x....", None),
        ("xx.......xx.......", None),
        (".x.......x.......x", None),
    ] {
        let mut world = World::new(&[target()]);
        world.run(SECOND, |_, _| true);
        let (before, count) = (world.sent.len(), std::cell::Cell::new(0));
        let verdicts = world.run(SECOND * 120, |_, _| {
            let place = count.replace(count.get() + 1);
            fate.as_bytes().get(place) != Some(&b'x')
        });
        let until = |at| world.sent.iter().filter(|sent| **sent < at).count() - before;
        let got = verdicts.first().map(|(at, _)| until(*at));
        assert_eq!(got, left, "{fate}");
    }
}

#[test]
fn a_path_that_is_suspect_is_asked_every_second() {
    let mut world = World::new(&[target()]);
    world.run(SECOND, |_, _| true);
    let (before, count) = (world.sent.len(), std::cell::Cell::new(0));
    world.run(SECOND * 60, |_, _| count.replace(count.get() + 1) != 0);
    let sent = &world.sent[before..];
    let pauses = sent.windows(2).map(|w| w[1].abs_diff(w[0]).as_millis());
    let pauses: Vec<_> = pauses.collect();
    let (soon, late) = pauses.split_at(8);
    assert!(soon.iter().all(|p| (900..=1100).contains(p)), "{soon:?}");
    assert!(late.iter().all(|p| (4500..=5500).contains(p)), "{late:?}");
}

#[test]
fn a_path_that_nothing_can_be_sent_by_is_left_in_two_more_seconds() {
    let mut probes = Probes::new(7);
    let used = Target {
        direct: true,
        ..target()
    };
    probes.set_targets(&[used], Duration::ZERO);
    let mut now = Duration::ZERO;
    for last in [false, false, true] {
        let (due, _) = probes.tick(now);
        assert_eq!(probes.not_sent(due[0], now), last);
        let next = probes.next().unwrap();
        let pause = next.abs_diff(now).as_millis();
        assert!(last || (900..=1100).contains(&pause), "{pause}");
        now = next;
    }
}

#[test]
fn two_misses_in_a_row_change_nothing() {
    let mut world = World::new(&[target()]);
    world.run(SECOND, |_, _| true);
    let count = std::cell::Cell::new(0);
    let verdicts = world.run(SECOND * 300, |_, _| {
        count.set(count.get() + 1);
        count.get() % 9 > 1
    });
    assert_eq!(verdicts, []);
    assert!(world.probes.misses() > 20);
}

#[test]
fn late_strange_and_repeated_answers_are_none() {
    let mut probes = Probes::new(7);
    probes.set_targets(&[target()], Duration::ZERO);
    let (due, _) = probes.tick(Duration::ZERO);
    let [echo] = due[..] else { panic!("{due:?}") };
    let before = probes.next();
    assert_eq!(before, Some(PATIENCE));
    probes.answered(ip("10.244.2.1"), echo.sequence, Duration::ZERO);
    probes.answered(echo.address, echo.sequence + 1, Duration::ZERO);
    probes.answered(echo.address, echo.sequence, PATIENCE);
    assert_eq!(probes.next(), before);
    // The same answer three times is one.
    for _ in 0..3 {
        assert!(!probes.answered(echo.address, echo.sequence, SPACING));
    }
    assert!(probes.direct().is_empty());
    assert!(probes.next().unwrap() < SECOND);
}

#[test]
fn what_cannot_be_sent_is_missed_at_once() {
    let mut probes = Probes::new(7);
    probes.set_targets(&[target()], Duration::ZERO);
    let (due, _) = probes.tick(Duration::ZERO);
    assert!(!probes.not_sent(due[0], Duration::ZERO));
    assert!(!probes.not_sent(due[0], Duration::ZERO));
    assert_eq!(probes.misses(), 1);
    assert!(probes.next().unwrap() > SECOND);
}

#[test]
fn another_way_to_the_peer_starts_over_at_once() {
    let mut world = World::new(&[target()]);
    world.run(SECOND * 12, |_, _| true);
    // Said again, nothing changes, nor is anything sent for it.
    assert!(!world.probes.set_targets(&[target()], world.now));
    assert_eq!(world.probes.direct().len(), 1);
    let moved = Target {
        via: ip("172.30.0.22"),
        ..target()
    };
    assert!(world.probes.set_targets(&[moved], world.now));
    assert!(world.probes.direct().is_empty());
    assert_eq!(world.probes.next(), Some(world.now));
    // While on the overlay and waiting for 30 s, too.
    world.run(SECOND * 20, |_, _| false);
    assert!(!world.probes.set_targets(&[target()], world.now));
    assert_eq!(world.probes.next(), Some(world.now));
    assert!(world.probes.set_targets(&[], world.now) || world.probes.next().is_none());
}

#[test]
fn a_change_of_this_nodes_own_side_asks_everybody_and_keeps_verdicts() {
    let mut world = World::new(&[target()]);
    world.run(SECOND * 12, |_, _| true);
    world.probes.ask_again(world.now);
    assert_eq!(world.probes.next(), Some(world.now));
    assert_eq!(world.probes.direct().len(), 1);
    let mut world = World::new(&[target()]);
    world.run(SECOND * 12, |_, _| false);
    world.probes.ask_again(world.now);
    let now = world.now;
    let verdicts = world.run(now + SECOND, |_, _| true);
    assert_eq!(verdicts.len(), 1);
}

#[test]
fn both_families_of_a_peer_are_judged_apart() {
    let v6 = Target {
        address: ip("fd00:244:1::1"),
        via: ip("fd00:30::12"),
        direct: false,
    };
    let mut world = World::new(&[target(), v6]);
    world.run(SECOND * 4, |address, _| address.is_ipv6());
    assert_eq!(world.probes.direct(), [v6.address].into());
}

#[test]
fn a_thousand_peers_come_evenly() {
    let targets: Vec<Target> = (0..1000u32)
        .map(|n| Target {
            address: IpAddr::V4((0x0af4_0001 + (n << 8)).into()),
            via: IpAddr::V4((0xac1e_0000 + n).into()),
            direct: false,
        })
        .collect();
    let mut world = World::new(&targets);
    world.run(SECOND * 40, |_, _| true);
    assert_eq!(world.probes.direct().len(), 1000);
    let busiest = |from: Now, step: Duration| {
        let mut counts = BTreeMap::<u128, usize>::new();
        for at in world.sent.iter().filter(|at| **at >= from) {
            *counts.entry(at.as_millis() / step.as_millis()).or_default() += 1;
        }
        *counts.values().max().unwrap()
    };
    // Starting up 600 a second on average, then 200.
    assert!(busiest(Duration::ZERO, SECOND) < 800);
    assert!(busiest(SECOND * 20, SECOND) < 300);
    assert!(busiest(SECOND * 20, Duration::from_millis(10)) < 20);
}

#[test]
fn nodes_do_not_ask_the_same_peer_at_the_same_time() {
    let first = |seed| {
        let mut probes = Probes::new(seed);
        let targets: Vec<Target> = (0..100u8)
            .map(|n| Target {
                address: IpAddr::from([10, 244, n, 1]),
                via: IpAddr::from([172, 30, 0, n]),
                direct: false,
            })
            .collect();
        probes.set_targets(&targets, Duration::ZERO);
        probes.peers[&targets[50].address].send_at
    };
    let moments: BTreeSet<Duration> = (0..50).map(first).collect();
    assert!(moments.len() > 45, "{}", moments.len());
}

#[test]
fn a_path_in_use_stays_so_from_the_start_and_is_asked_at_once() {
    let used = Target {
        direct: true,
        ..target()
    };
    let mut probes = Probes::new(7);
    assert!(probes.set_targets(&[used], Duration::ZERO));
    assert_eq!(probes.direct(), [used.address].into());
    assert_eq!(probes.next(), Some(Duration::ZERO));
    // It has to prove itself like any other, and what is known already is not taken back.
    let mut world = World::new(&[used]);
    assert_eq!(world.run(SECOND * 20, |_, _| false).len(), 1);
    assert!(!world.probes.set_targets(&[used], world.now));
    assert!(world.probes.direct().is_empty());
}
