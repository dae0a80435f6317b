//! What a kernel would do with a new connection, from the text of rules alone.
//!
//! This reads what is rendered, word by word, and knows nothing of how it came about; a
//! word that it does not know ends the test. Chance is followed both ways, so a walk ends
//! in all outcomes with their probabilities.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

/// A packet on its way, with what rules have made of it.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) src: IpAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) protocol: &'static str,
    /// The device it came by; none if the node sends it.
    pub(crate) ifname: Option<String>,
    /// `NEW`, `ESTABLISHED` or `INVALID`.
    pub(crate) state: &'static str,
    pub(crate) translated: bool,
    pub(crate) mark: u32,
    /// Sets that the source is in.
    pub(crate) sets: BTreeSet<String>,
}

/// How a walk through one hook ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody said anything.
    Policy,
    Accept,
    Drop,
    Reject,
    Dnat(SocketAddr),
    /// Whether its ports are random altogether.
    Masquerade(bool),
}

/// One way that chance may go.
pub(crate) type Way = (f64, Packet, End);

/// The rules of one family.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// By table and chain, built-in ones too.
    chains: BTreeMap<(String, String), Vec<Vec<String>>>,
    /// Seconds by name.
    pub(crate) sets: BTreeMap<String, u64>,
    /// The node's own addresses.
    pub(crate) own: BTreeSet<IpAddr>,
}

/// What a rule is to a packet.
enum Match {
    No,
    With(f64),
}

impl Rules {
    /// From the text form of `Tables`.
    pub(crate) fn parse(text: &str, own: BTreeSet<IpAddr>) -> Self {
        let mut rules = Self {
            own,
            ..Self::default()
        };
        let mut table = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
                continue;
            }
            let words = words(line);
            match words[0].as_str() {
                "set" => drop(
                    rules
                        .sets
                        .insert(words[1].clone(), words[3].parse().unwrap()),
                ),
                "-A" | "-I" => {
                    let place = (table.to_owned(), words[1].clone());
                    rules
                        .chains
                        .entry(place)
                        .or_default()
                        .push(words[2..].to_vec());
                }
                chain if chain.starts_with(':') => {
                    let place = (table.to_owned(), chain[1..].to_owned());
                    rules.chains.entry(place).or_default();
                }
                other => panic!("{other}"),
            }
        }
        rules
    }

    fn is_own(&self, addr: IpAddr) -> bool {
        addr.is_loopback() || self.own.contains(&addr)
    }

    /// Through a built-in chain.
    pub(crate) fn hook(&self, table: &str, chain: &str, packet: Packet) -> Vec<Way> {
        let place = (table.to_owned(), chain.to_owned());
        if !self.chains.contains_key(&place) {
            return vec![(1.0, packet, End::Policy)];
        }
        let ways = self.chain(table, chain, packet);
        let end = |end: Option<End>| end.unwrap_or(End::Policy);
        ways.into_iter()
            .map(|(p, packet, e)| (p, packet, end(e)))
            .collect()
    }

    /// No end: it returns to whoever has called.
    fn chain(&self, table: &str, chain: &str, packet: Packet) -> Vec<(f64, Packet, Option<End>)> {
        let place = (table.to_owned(), chain.to_owned());
        let rules = self.chains.get(&place);
        let rules = rules.unwrap_or_else(|| panic!("there is no {table} {chain}"));
        let mut live = vec![(1.0, packet)];
        let mut done = Vec::new();
        for rule in rules {
            let mut next = Vec::new();
            for (chance, packet) in live {
                let Match::With(share) = self.matches(rule, &packet) else {
                    next.push((chance, packet));
                    continue;
                };
                if share < 1.0 {
                    next.push((chance * (1.0 - share), packet.clone()));
                }
                for (p, packet, end) in self.act(table, rule, packet) {
                    let chance = chance * share * p;
                    match end {
                        Step::On => next.push((chance, packet)),
                        Step::Return => done.push((chance, packet, None)),
                        Step::End(end) => done.push((chance, packet, Some(end))),
                    }
                }
            }
            live = next;
        }
        done.extend(live.into_iter().map(|(p, packet)| (p, packet, None)));
        done
    }

    fn matches(&self, rule: &[String], packet: &Packet) -> Match {
        let mut words = rule.iter().map(String::as_str);
        let mut next = || words.next();
        let (mut not, mut share) = (false, 1.0);
        while let Some(word) = next() {
            let mut value = || next().unwrap();
            let holds = match word {
                "-j" | "-g" => return Match::With(share),
                "!" => {
                    not = true;
                    continue;
                }
                "-m" | "--comment" | "--mode" => {
                    value();
                    continue;
                }
                "-s" => network(value()).contains(packet.src),
                "-d" => network(value()).contains(packet.dst.ip()),
                "-i" => of_device(value(), packet.ifname.as_deref()),
                "-p" => value() == packet.protocol,
                "--dport" => within(value(), packet.dst.port()),
                "--dst-type" => value() == "LOCAL" && self.is_own(packet.dst.ip()),
                "--src-type" => value() == "LOCAL" && self.is_own(packet.src),
                "--mark" => {
                    let (mark, mask) = pair(value());
                    packet.mark & mask == mark
                }
                "--ctstate" => value()
                    .split(',')
                    .any(|state| state == packet.state || state == "DNAT" && packet.translated),
                "--match-set" => {
                    let held = packet.sets.contains(value());
                    assert_eq!(value(), "src");
                    held
                }
                "--probability" => {
                    share = value().parse().unwrap();
                    true
                }
                other => panic!("what is {other}? {rule:?}"),
            };
            if holds == std::mem::take(&mut not) {
                return Match::No;
            }
        }
        panic!("no target: {rule:?}")
    }

    fn act(&self, table: &str, rule: &[String], mut packet: Packet) -> Vec<(f64, Packet, Step)> {
        let at = rule
            .iter()
            .position(|word| word == "-j" || word == "-g")
            .unwrap();
        let target = rule[at + 1].as_str();
        let option = |name: &str| {
            let at = rule.iter().position(|word| word == name)?;
            rule.get(at + 1).map(String::as_str)
        };
        let step = match target {
            "RETURN" => Step::Return,
            "ACCEPT" => Step::End(End::Accept),
            "DROP" => Step::End(End::Drop),
            "REJECT" => {
                let with = option("--reject-with").unwrap();
                let port = ["icmp-port-unreachable", "icmp6-port-unreachable"];
                assert_eq!(with, port[usize::from(packet.dst.is_ipv6())]);
                Step::End(End::Reject)
            }
            "DNAT" => {
                let to: SocketAddr = option("--to-destination").unwrap().parse().unwrap();
                packet.dst = to;
                packet.translated = true;
                Step::End(End::Dnat(to))
            }
            "MASQUERADE" => {
                let random = rule.iter().any(|word| word == "--random-fully");
                Step::End(End::Masquerade(random))
            }
            "MARK" => {
                let (mark, mask) = pair(option("--set-xmark").unwrap());
                packet.mark = packet.mark & !mask ^ mark;
                Step::On
            }
            "SET" => {
                packet.sets.insert(option("--add-set").unwrap().to_owned());
                Step::On
            }
            chain => {
                let back = if rule[at] == "-g" {
                    Step::Return
                } else {
                    Step::On
                };
                let ways = self.chain(table, chain, packet);
                let step = |end: Option<End>| end.map_or_else(|| back.clone(), Step::End);
                return ways
                    .into_iter()
                    .map(|(p, packet, e)| (p, packet, step(e)))
                    .collect();
            }
        };
        vec![(1.0, packet, step)]
    }
}

#[derive(Clone, Debug)]
enum Step {
    On,
    Return,
    End(End),
}

/// What is quoted is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (nth, part) in line.split('"').enumerate() {
        if nth % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn network(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

fn of_device(pattern: &str, ifname: Option<&str>) -> bool {
    let ifname = ifname.unwrap_or_default();
    match pattern.strip_suffix('+') {
        Some(prefix) => ifname.starts_with(prefix),
        None => ifname == pattern,
    }
}

fn within(text: &str, port: u16) -> bool {
    let (from, to) = text.split_once(':').unwrap_or((text, text));
    (from.parse().unwrap()..=to.parse().unwrap()).contains(&port)
}

/// `0x4000/0x4000`
fn pair(text: &str) -> (u32, u32) {
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let (mark, mask) = text.split_once('/').unwrap();
    (number(mark), number(mask))
}
